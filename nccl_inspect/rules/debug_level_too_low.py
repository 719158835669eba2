"""A log with only NCCL's version and warnings."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, first_evidence
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.levels import STATEMENTS


def find(facts: Facts) -> Iterator[Hit]:
    """Find logs whose NCCL lines are all warnings or the version line; excerpts omit lines."""
    sparse = [notice for notice in facts.job.notices if notice.level in (*STATEMENTS, "VERSION")]
    lines = sum(source.nccl_lines for source in facts.job.sources)
    if sparse and sum(notice.count for notice in sparse) >= lines and not facts.job.excerpt:
        only = "the version line" if all(notice.level == "VERSION" for notice in sparse) else "warnings"
        yield Hit(evidence=first_evidence(sparse), named={"only": only})
