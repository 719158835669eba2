"""Torn and interleaved lines, and lines with an unknown prefix."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.levels import ANY
from nccl_inspect.util.patterns import later

_SHARE, _NEARLY_ALL = 0.01, 0.9
"""Even in torn blocks most lines are whole."""
_ANY = ANY.decode("ascii")
_TWO = later(rf"NCCL (?:{_ANY}) .*NCCL (?:{_ANY}) ")
"""A line into which another one was written: unknown prefixes do not do that."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find torn NCCL lines, repaired or not, if they are more than a few."""
    lost, repaired, lines = (
        sum(getattr(source, f"{kind}_lines") for source in facts.job.sources)
        for kind in ("damaged", "repaired", "nccl")
    )
    if lost + repaired > lines * _SHARE:
        examples = facts.job.damaged
        written_into = repaired or any(_TWO.search(example.text) for example in examples)
        alike = lost >= _NEARLY_ALL * lines and not written_into
        named = {
            "torn": lost + repaired,
            "lines": f"{lines:,}",
            "repaired": repaired,
            "lost": lost,
            "unread": f"{lost:,}",
            "alike": alike,
        }
        yield Hit(named=named, evidence=examples or facts.job.repaired)
