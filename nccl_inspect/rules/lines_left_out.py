"""NCCL lines that a collector shows once for several processes."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.wording import does


def find(facts: Facts) -> Iterator[Hit]:
    """Find the marks that Ray appends to NCCL lines."""
    if markers := facts.job.spared:
        lines = f"{len(markers)} or more lines" if len(markers) > 1 else "a line"
        yield Hit(evidence=markers, named={"lines": f"{lines} {does(len(markers), 'represent')}"})
