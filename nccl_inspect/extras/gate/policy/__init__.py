"""What a run must be like: expectations from a TOML file, each kept, broken, or left undecided by the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field

from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job
from nccl_inspect.util.records import Frozen, frozen

STATES = ("broken", "undecided", "kept")
_MAX_EVIDENCE = 3


@frozen
class Answer(Frozen):
    """Holds what the log says to an expectation."""

    state: str
    """``kept``, ``broken`` or ``undecided``."""
    summary: str
    """What was found."""
    todo: str = ""
    """What mends it, or which log would show it; empty when it is kept."""
    ranks: list[int] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    rule: str = ""
    """The rule whose finding it is or goes back to; empty when no rule speaks of it."""


def kept(summary: str) -> Answer:
    """It is as expected."""
    return Answer("kept", summary)


def broken(
    summary: str, todo: str, evidence: Iterable[Evidence] = (), ranks: Iterable[int] = (), rule: str = ""
) -> Answer:
    """It is not as expected."""
    return Answer("broken", summary, todo, sorted(set(ranks)), list(evidence)[:_MAX_EVIDENCE], rule)


def undecided(summary: str, todo: str, evidence: Iterable[Evidence] = (), ranks: Iterable[int] = ()) -> Answer:
    """The log does not show it."""
    return Answer("undecided", summary, todo, sorted(set(ranks)), list(evidence)[:_MAX_EVIDENCE])


@frozen
class Expectation(Frozen):
    """One line of a policy."""

    key: str
    """Its key in the file: ``paths.inter.gdr``."""
    wanted: str
    """What it asks for, in words."""
    ask: Callable[[Job], Iterable[Answer]]
    """Gives at least one answer, and one for each thing that breaks it."""


@frozen
class Outcome(Frozen):
    """An answer with the expectation that it is about."""

    key: str
    wanted: str
    answer: Answer


@frozen
class Checked(Frozen):
    """A job checked against a policy."""

    policy: str
    """The name of the file."""
    job: Job
    outcomes: list[Outcome]
    """What is broken first, then what is undecided."""

    @property
    def state(self) -> str:
        """The state of the worst outcome."""
        return self.outcomes[0].answer.state if self.outcomes else "kept"

    def of(self, state: str) -> list[Outcome]:
        """The outcomes in that state."""
        return [outcome for outcome in self.outcomes if outcome.answer.state == state]

    @property
    def findings(self) -> list[Finding]:
        """The findings that what is broken goes back to."""
        rules = {outcome.answer.rule for outcome in self.of("broken")}
        return [finding for finding in self.job.findings if finding.rule in rules]

    def is_met(self, strict: bool) -> bool:
        """Whether nothing is broken and, if strict, nothing undecided."""
        return self.state == "kept" or (self.state == "undecided" and not strict)


@frozen
class Policy(Frozen):
    """Expectations of a file."""

    file: str
    expectations: list[Expectation]

    def check(self, job: Job) -> Checked:
        """Hold a judged job against it."""
        outcomes = [Outcome(each.key, each.wanted, answer) for each in self.expectations for answer in each.ask(job)]
        outcomes += [Outcome("log", "to be read", answer) for answer in _unread(job)]
        return Checked(self.file, job, sorted(outcomes, key=lambda outcome: STATES.index(outcome.answer.state)))


def _unread(job: Job) -> Iterable[Answer]:
    """Inputs that could not be read may hold what breaks the policy."""
    return [undecided(source.problem, "see the message") for source in job.sources if source.problem]
