"""The rule that a single line leads to, and the first step of its fix."""

from __future__ import annotations

from nccl_inspect.errors import NoInputError
from nccl_inspect.judging.engine import CATEGORIES, Rule, registered
from nccl_inspect.model.finding import Finding
from nccl_inspect.pipeline import reading
from nccl_inspect.scanning.meaning import Meaning
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.text import encode

_NOBODY = "host:1:1 [0] NCCL"
"""Prefix for a message without one, so that it reads as a log line."""

_FOLLOWING = "step 1"
"""A following line, so that the message does not count as the end of a log, where ranks may hang."""


@frozen
class Lead(Frozen):
    """The rule that a line leads to."""

    rule: Rule
    fix: str
    """The first step of the fix if the line alone raises a finding, else empty."""


def of_line(text: str, meaning: Meaning) -> Lead | None:
    """The rule that the grammar names for a line, else the rule that has a finding for this line alone."""
    named = meaning.production.rule
    findings = _judged(text, meaning)
    rules = {entry.rule.name: entry.rule for entry in registered()}
    finding = next((candidate for candidate in findings if candidate.rule == named), findings[0] if findings else None)
    if finding is None:
        return Lead(rules[named], "") if named else None
    return Lead(rules[finding.rule], next(iter(finding.fix), ""))


def _judged(text: str, meaning: Meaning) -> list[Finding]:
    """The findings for this line alone, except those about log quality."""
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
    # NCCL prints errors at level WARN.
    level = meaning.level or ("WARN" if production.constants.get("tone") == "error" else "INFO")
    return f"{_NOBODY} {level} {meaning.message}"
