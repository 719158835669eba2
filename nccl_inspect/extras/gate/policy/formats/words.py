"""What every format says of a checked policy, in words."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.extras.gate.policy import STATES, Checked, Outcome
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding
from nccl_inspect.util.wording import count


def verdict(checked: Checked, strict: bool) -> str:
    """``KEPT`` or ``BROKEN``, as the exit status has it."""
    return "KEPT" if checked.is_met(strict) else "BROKEN"


def numbers(checked: Checked, strict: bool) -> str:
    """Return how many expectations are in which state."""
    counts = ", ".join(f"{len(outcomes)} {state}" for state in STATES if (outcomes := checked.of(state)))
    why = "; with --strict, undecided counts as broken" if checked.state == "undecided" and strict else ""
    partial = "; partial: the reading was interrupted" if checked.job.partial else ""
    return (counts or "no expectation") + why + partial


def sentence(outcome: Outcome) -> str:
    """Return what was found and what was wanted."""
    return f"{outcome.answer.summary}, wanted: {outcome.wanted}"


def place(evidence: list[Evidence]) -> str:
    """The first line, and how many more there are to look at in the JSON; empty where there is none."""
    if not evidence:
        return ""
    first = f"{evidence[0].source}:{evidence[0].line}"
    return first if len(evidence) == 1 else f"{first} and {count(len(evidence) - 1, 'more line')}"


def by_fix(checked: Checked) -> Iterator[tuple[str, str, list[Outcome]]]:
    """Yield what is not kept, together where the same mends it: the state, what mends it, and the outcomes."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in checked.outcomes:
        if outcome.answer.state != "kept":
            groups.setdefault((outcome.answer.state, outcome.answer.todo), []).append(outcome)
    for (state, todo), outcomes in groups.items():
        yield state, todo, outcomes


def label(state: str) -> str:
    """Return what the step is called: what is undecided needs another log, and no fix."""
    return "fix" if state == "broken" else "needs"


def about(outcome: Outcome, checked: Checked) -> Finding | None:
    """The finding that an outcome goes back to."""
    return next((finding for finding in checked.findings if finding.rule == outcome.answer.rule), None)


def level(outcome: Outcome, strict: bool) -> str:
    """``error`` for what breaks the policy, else ``warning`` for what is undecided."""
    return "error" if strict or outcome.answer.state == "broken" else "warning"
