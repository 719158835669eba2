"""The results of the rules for a job, in an order independent of the order in which the rules run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nccl_inspect.judging import networks
from nccl_inspect.judging.check import Effects
from nccl_inspect.judging.engine import CATEGORIES, Registered, Result, Rule, superseding
from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice, Paths, Selection
from nccl_inspect.util.records import Frozen, frozen


@frozen
class Mark(Frozen):
    """The marks of rules on a path."""

    rules: tuple[str, ...] = ()
    """Those whose findings are about it."""
    is_open: bool = False
    """Whether one of them could not judge it."""

    def with_question(self) -> Mark:
        """Return the same, of a path that could not be judged."""
        return Mark(self.rules, is_open=True)

    def with_rule(self, rule: str) -> Mark:
        """Return the same with a rule that has a finding about it."""
        return self if rule in self.rules else Mark((*self.rules, rule), self.is_open)


class Results:
    """The findings of all rules, and the questions that they leave open."""

    def __init__(self, paths: Paths) -> None:
        self.marking = [0] * len(paths)
        """For each path the index of its entry in the marks."""
        self.findings: list[Finding] = []
        self.questions: list[NotJudged] = []
        self._effects: set[int] = set()
        self._marks = {Mark(): 0}

    @property
    def marks(self) -> list[Mark]:
        """Return all distinct marks of paths."""
        return list(self._marks)

    def where(self, paths: Selection, test: Callable[[Mark], object]) -> Selection:
        """Return the paths whose marks meet a condition."""
        passed = [bool(test(mark)) for mark in self._marks]
        return Selection(paths.table, (), [row for row in paths.rows if passed[self.marking[row]]])

    def is_effect(self, notice: Notice) -> bool:
        """Return whether an error is only an effect, or a finding explains it."""
        return id(notice) in self._effects

    def add(self, result: Result) -> None:
        """Add one result of a rule."""
        if isinstance(result, Effects):
            self._effects.update(map(id, result.errors))
        elif isinstance(result, NotJudged):
            self.questions.append(result)
            self._mark(result.paths, Mark.with_question)
        else:
            self.findings.append(result)
            self._effects.update(map(id, result.explained))
            self._mark(result.open_paths, Mark.with_question)
            self._mark(result.paths, lambda mark: mark.with_rule(result.rule))

    def _mark(self, paths: Selection | None, change: Callable[[Mark], Mark]) -> None:
        """Say more of some paths."""
        before = self.marks
        places: dict[int, int] = {}
        for row in paths.rows if paths is not None else ():
            old = self.marking[row]
            if old not in places:
                places[old] = self._marks.setdefault(change(before[old]), len(self._marks))
            self.marking[row] = places[old]


def run_rules(facts: Facts, rules: Iterable[Registered]) -> Results:
    """Run the rules: first those that judge the job, then those that explain their findings."""
    rules = list(rules)
    collected = Results(facts.job.paths)
    judged = [(entry.rule, list(entry.judge(facts))) for entry in rules if entry.judge]
    for rule, results in sorted(judged, key=_sort_key):
        for result in results:
            if isinstance(result, Finding):  # without steps for clouds where the job does not run
                clouds = {rule.cloud, *networks.clouds_of(facts)}
                result = result.with_fields(fix=networks.applicable(result.fix, clouds))
            collected.add(result)
    first = list(collected.findings)
    present = {finding.rule for finding in first}
    effects = [finding for finding in first if present.isdisjoint(superseding(finding.rule))]
    explained = [(entry.rule, list(entry.explain(facts, effects))) for entry in rules if entry.explain]
    for _, results in sorted(explained, key=_sort_key):
        for result in results:
            collected.add(result)  # a file beside the log names the steps that help
    return collected


def _sort_key(judged: tuple[Rule, list[Result]]) -> tuple[int, str]:
    return CATEGORIES.index(judged[0].category), judged[0].name
