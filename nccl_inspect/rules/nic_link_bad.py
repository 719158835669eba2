"""A port that NCCL uses is down, or slower than the others."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find the ports that NCCL lists in files from their hosts."""
    if facts.job.artifacts:
        from nccl_inspect.judging.evidence import settled  # most jobs are a log alone

        yield from settled.find_clues(facts, "nic-link-bad")
