"""JUnit XML: a case for each expectation, with the finding that it goes back to."""

from __future__ import annotations

from collections.abc import Iterator

from junitparser import Skipped, TestCase

from nccl_inspect.extras.gate.policy import Checked, Outcome
from nccl_inspect.extras.gate.policy.formats.words import about, label, level, sentence
from nccl_inspect.report import Style
from nccl_inspect.report.junit import document, failure, lines, new_case, suite, unread
from nccl_inspect.util.grouping import grouped
from nccl_inspect.util.text import printable

SUFFIXES = ("xml",)
_SUITE = "policy"


def render(checked: Checked, strict: bool, style: Style) -> str:
    """Return what is broken fails; what is undecided is skipped, unless strict."""
    by_key = grouped((outcome.key, outcome) for outcome in checked.outcomes)
    by_key.pop("log", None)  # an input that could not be read is an error
    cases = [_case(key, outcomes, checked, strict) for key, outcomes in by_key.items()]
    return document([suite(_SUITE, [*cases, *unread(checked.job)])])


def _case(key: str, outcomes: list[Outcome], checked: Checked, strict: bool) -> TestCase:
    """An expectation with the worst that the log says to it: a case has one result in most viewers."""
    case = new_case(key, _SUITE)
    first = outcomes[0]
    if first.answer.state == "kept":
        case.system_out = printable(first.answer.summary)
    elif level(first, strict) == "error":
        more = f" (and {len(outcomes) - 1} more)" if len(outcomes) > 1 else ""
        text = "\n\n".join("\n".join(_text(outcome, checked)) for outcome in outcomes)
        case.result = [failure(sentence(first) + more, first.answer.state, text)]
    else:
        case.result = [Skipped(printable(f"{sentence(first)}; {first.answer.todo}"))]
    return case


def _text(outcome: Outcome, checked: Checked) -> Iterator[str]:
    answer = outcome.answer
    yield sentence(outcome)
    yield f"{label(answer.state):10}{answer.todo}"
    for line in answer.evidence:
        yield f"evidence  {line.source}:{line.line}: {line.text}"
    if finding := about(outcome, checked):
        yield ""
        yield from lines(finding)
