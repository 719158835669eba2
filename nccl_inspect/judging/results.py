"""The results of the rules for a job, in an order independent of the order in which the rules run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from nccl_inspect.judging import clouds
from nccl_inspect.judging.engine import CATEGORIES, Effects, Registered, Result, Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.relations import relations
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice, Path


class Results:
    """The findings of all rules, and the questions that they leave open."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.questions: list[NotJudged] = []
        self._effects: set[int] = set()
        self._marks: dict[int, list[str]] = {}
        self._open: set[int] = set()

    def marks(self, path: Path) -> list[str]:
        """The rules whose findings are about a path."""
        return self._marks.get(id(path), [])

    def is_open(self, path: Path) -> bool:
        """Whether a rule could not judge a path."""
        return id(path) in self._open

    def is_effect(self, notice: Notice) -> bool:
        """Whether an error is only an effect, or a finding explains it."""
        return id(notice) in self._effects

    def add(self, result: Result) -> None:
        """Add one result of a rule."""
        if isinstance(result, Effects):
            self._effects.update(map(id, result.errors))
        elif isinstance(result, NotJudged):
            self.questions.append(result)
            self._open.update(map(id, result.paths))
        else:
            self.findings.append(result)
            self._effects.update(map(id, result.explained))
            self._open.update(map(id, result.open_paths))
            for path in result.paths:
                marks = self._marks.setdefault(id(path), [])
                if result.rule not in marks:
                    marks.append(result.rule)


def of(facts: Facts, rules: Iterable[Registered]) -> Results:
    """Run the rules: first those that judge the job, then those that explain their findings.

    Args:
        facts: about the job.
        rules: to run, in any order.
    """
    rules = list(rules)
    collected = Results()
    judged = [(entry.rule, list(entry.judge(facts))) for entry in rules if not entry.rule.explains]
    for rule, results in sorted(judged, key=_place):
        for result in results:
            collected.add(_for_cloud(facts, rule, result))
    first = list(collected.findings)
    later = (entry for entry in rules if entry.rule.explains)
    explained = [(entry.rule, list(entry.judge(facts, _effects(entry.rule, first)))) for entry in later]
    for _, results in sorted(explained, key=_place):
        for result in results:
            collected.add(result)  # a file beside the log names the steps that help
    return collected


def _place(judged: tuple[Rule, list[Result]]) -> tuple[int, str]:
    return CATEGORIES.index(judged[0].category), judged[0].name


def _effects(rule: Rule, findings: Sequence[Finding]) -> list[Finding]:
    """The findings that a rule may explain, without those superseded by a more specific rule."""
    present = {finding.rule for finding in findings}
    wanted = {name for name in rule.explains if present.isdisjoint(relations().specific(name))}
    return [finding for finding in findings if finding.rule in wanted]


def _for_cloud(facts: Facts, rule: Rule, result: Result) -> Result:
    """The result; a finding without steps for clouds where the job does not run."""
    if not isinstance(result, Finding):
        return result
    return replace(result, fix=clouds.applicable(result.fix, {rule.cloud, *clouds.clouds_of(facts)}))
