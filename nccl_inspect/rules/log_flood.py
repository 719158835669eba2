"""A warning or an error that repeats until it fills the log."""

from collections.abc import Iterator

from nccl_inspect.event.types import ErrorCascade
from nccl_inspect.judging.engine import Facts, Notice
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.levels import STATEMENTS

_MANY = 10_000
_REPEATED = 100
"""Fewer repeats are not a flood, however short the log is."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find warnings, errors and cascades that repeat; the output of NCCL_DEBUG_SUBSYS=ALL was requested."""
    repeated = [notice for notice in facts.job.notices if notice.count >= _REPEATED and _is_trouble(notice)]
    total = sum(notice.count for notice in repeated)
    lines = sum(source.lines for source in facts.job.sources)
    if any(notice.count > _MANY for notice in repeated) or total * 2 > lines:
        repeated.sort(key=lambda notice: notice.place)
        yield Hit(repeated, {"total": f"{total:,}", "lines": f"{lines:,}"})


def _is_trouble(notice: Notice) -> bool:
    tone = getattr(notice.event, "tone", "info")
    return notice.level in STATEMENTS or tone != "info" or isinstance(notice.event, ErrorCascade)
