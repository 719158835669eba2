"""Which rule a single line leads to, and what to do first."""

from __future__ import annotations

from dataclasses import dataclass

from nccl_inspect.errors import NoInputError
from nccl_inspect.judging.engine import CATEGORIES, Rule, registered
from nccl_inspect.model.finding import Finding
from nccl_inspect.pipeline import reading
from nccl_inspect.scanning.meaning import Meaning
from nccl_inspect.util.records import Record
from nccl_inspect.util.text import encode

_NOBODY = "host:1:1 [0] NCCL"
"""Prefix for a message that is given without one, so that it is read as a line of a log."""

_FOLLOWING = "step 1"
"""What follows it, so that it does not count as the end of a log, at which ranks may hang."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Lead(Record):
    """The rule that a line leads to."""

    rule: Rule
    fix: str
    """The first step of the fix, where the line alone raises a finding; else empty."""


def of_line(text: str, meaning: Meaning) -> Lead | None:
    """The rule that the grammar names for a line, else the one that finds something in a log of this line alone.

    Args:
        text: the line as it was given.
        meaning: of the line.
    """
    named = meaning.production.rule
    findings = _judged(text, meaning)
    rules = {entry.rule.name: entry.rule for entry in registered()}
    finding = next((candidate for candidate in findings if candidate.rule == named), findings[0] if findings else None)
    if finding is None:
        return Lead(rules[named], "") if named else None
    return Lead(rules[finding.rule], next(iter(finding.fix), ""))


def _judged(text: str, meaning: Meaning) -> list[Finding]:
    """What the line raises alone, without what is about the log as such."""
    judge = reading.Judge(reading.Options())
    try:
        job = judge(reading.fold(encode(f"{_as_in_a_log(text, meaning)}\n{_FOLLOWING}\n")))
    except NoInputError:  # it only counts beside lines of NCCL
        return []
    return [finding for finding in job.findings if finding.category != CATEGORIES[-1]]


def _as_in_a_log(text: str, meaning: Meaning) -> str:
    production = meaning.production
    if meaning.origin or production.foreign or production.bare or production.traced:
        return text
    # A level that is not given is the one that errors have: NCCL warns of them.
    level = meaning.level or ("WARN" if production.constants.get("tone") == "error" else "INFO")
    return f"{_NOBODY} {level} {meaning.message}"
