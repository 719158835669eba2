"""Rules: their declaration, their findings, their registry, and the results of all in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pathlib import Path as File
from typing import Any

from nccl_inspect.errors import NcclInspectError, suggestion
from nccl_inspect.event.base import is_named
from nccl_inspect.grammar.layers import Layer
from nccl_inspect.judging import networks
from nccl_inspect.judging.check import Account, Effects
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.impact import Estimate
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice, Paths, Selection
from nccl_inspect.util.discovery import modules
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.text import cut

SEVERITIES = ("info", "warning", "error")
LAYERS = {
    "intra-node path": Layer.RESOURCE,
    "network": Layer.RESOURCE,
    "gpudirect": Layer.SETTING,
    "plugins": Layer.SETTING,
    "bootstrap": Layer.SYSTEM,
    "environment": Layer.SETTING,
    "topology": Layer.SETTING,
    "failures": Layer.RESOURCE,
    "log quality": Layer.NONE,
}
"""The layer of what rules of a category find, unless they state another one."""
CATEGORIES = tuple(LAYERS)
_RULES = File(__file__).parents[1] / "rules"
"""Each page there is a rule; where it compares facts, a function of a module there has its name."""


class Rule(Frozen):
    """The declaration of a rule; its results are :class:`~nccl_inspect.model.finding.Finding` objects."""

    name: str
    category: str
    title: str  # what is wrong, in one line
    severity: str = "error"  # the usual severity; a finding may differ, by its effect
    layer: Layer | None = None
    """How near to a cause it is what it finds; None for that of its category."""
    may_cause: tuple[str, ...] = ()
    """What it may explain: layers of failures, ``stage`` for ranks that never began a communicator, and kinds of
    effects that rules show."""
    shows: tuple[str, ...] = ()
    """The kinds of effects that its findings are, by which rules that may cause them name them."""
    tells: tuple[str, ...] = ()  # the kinds of incidents that it tells: it only joins statements of several processes
    supersedes: tuple[str, ...] = ()  # rules that are less specific: their findings are dropped if this one has any
    nest_under_effect: bool = False
    """A cause that nests under the slow path it leads to, if there is one: the effect makes the headline. Any other
    cause leads, and its effects nest under it."""
    cloud: str = ""  # the cloud vendor it is about: a finding means that the job runs there

    def finding(
        self,
        summary: str,
        *,
        impact: str | Estimate,
        fix: Iterable[str],
        confirm: str = "",
        severity: str | None = None,
        confidence: str | None = None,
        ranks: Iterable[int] = (),
        hosts: Iterable[str | None] = (),
        evidence: Iterable[Evidence] = (),
        **others: Any,
    ) -> Finding:
        """Create a finding of this rule: one for each cause, with the first lines as evidence.

        With ``confirm`` it is a clue from a statement, a setting or an inventory: the log does not show the effect.
        A clue never makes the verdict of a job ``degraded`` or ``failed``; if nothing else does, the verdict is
        ``unknown``, and the headline is the strongest clue.

        Args:
            summary: what is wrong, in one line; of a clue, what the log suggests.
            impact: the cost; of a clue, if it applies.
            fix: the changes to make, step by step.
            confirm: how to confirm or refute it: a line to look for, a command, a setting for the next run.
            severity: by its effect; None for that of the rule, of a clue for a warning at most.
            confidence: in the cause; None for ``certain``. Of a clue, ``likely`` (None) if the statement hardly has
                another reading, else ``possible``.
            others: fields of the finding, as they are.
        """
        return Finding(
            rule=self.name,
            category=self.category,
            severity=severity or ("warning" if confirm and self.severity == "error" else self.severity),
            confidence=confidence or ("likely" if confirm else "certain"),
            # It may quote a message of any length, and the evidence has all of it.
            summary=cut(" ".join(summary.split()), 300),
            impact=str(impact),
            references=list(impact.references) if isinstance(impact, Estimate) else [],
            fix=list(fix),
            ranks=sorted(set(ranks)),
            hosts=sorted({host for host in hosts if host and is_named(host)}),
            evidence=sort_lines(evidence)[:5],
            clue=bool(confirm),
            confirm=confirm,
            **others,
        )

    def causes(self, effect: Rule) -> bool:
        """Return whether it may cause the kinds of effects that a rule shows."""
        return not set(effect.shows).isdisjoint(self.may_cause)

    @property
    def reach(self) -> Layer:
        """Return how near to a cause it is what it finds."""
        return LAYERS[self.category] if self.layer is None else self.layer

    @property
    def page(self) -> str:
        """Return the Markdown page of the rule, in words only."""
        from nccl_inspect.judging import pages  # which makes rules

        return pages.render_page((_RULES / f"{self.name.replace('-', '_')}.md").read_text(encoding="utf-8"), self)


def sort_lines(evidence: Iterable[Evidence]) -> list[Evidence]:
    """Return each line once: a line may show both that a rank waited and that it lags."""
    lines = {line.position: line for line in evidence}
    return [lines[place] for place in sorted(lines)]


Result = Finding | NotJudged | Effects  # one result of a rule


class Registered(Frozen):
    """A rule with what its page, and the function of its name, make of a job."""

    rule: Rule
    judge: Callable[[Facts], Iterator[Result]] | None
    explain: Callable[[Facts, Sequence[Finding]], Iterator[Result]] | None = None
    """Instead of ``judge``, of a rule about files beside the log, or about what no other says: gets all findings."""
    tell: Callable[[Facts, Account], Finding] | None = None
    """Of a rule that ``tells`` kinds of incidents: takes what the story tells."""


@cache
def list_rules() -> tuple[Registered, ...]:
    """Return all rules, ordered by category and name."""
    from nccl_inspect.judging import pages  # which makes rules

    loaded = [import_module(f"nccl_inspect.rules.{name}") for name in modules(str(_RULES / "__init__.py"))]
    rules = pages.load_rules(_RULES, loaded)
    return tuple(sorted(rules, key=lambda entry: (CATEGORIES.index(entry.rule.category), entry.rule.name)))


@cache
def rules_by_name() -> dict[str, Rule]:
    """Return all rules by their names."""
    return {entry.rule.name: entry.rule for entry in list_rules()}


@cache
def causes_of(name: str) -> tuple[Rule, ...]:
    """Return the rules that may cause what a rule shows, but for those about files: these decide themselves."""
    effect = rules_by_name()[name]
    rules = [entry.rule for entry in list_rules() if entry.judge]
    return tuple(rule for rule in rules if rule is not effect and rule.causes(effect))


@cache
def superseding(name: str) -> frozenset[str]:
    """Return the more specific rules, whose findings replace those of a rule."""
    return frozenset(entry.rule.name for entry in list_rules() if name in entry.rule.supersedes)


def select_rules(select: Iterable[str] = (), ignore: Iterable[str] = ()) -> list[Registered]:
    """Return the rules to run.

    Args:
        select: names, globs or categories; empty for all.
        ignore: likewise, removed from the selection.

    Raises:
        NcclInspectError: a pattern matches no rule.
    """
    wanted, unwanted = (
        {one.rule.name for pattern in some for one in _list_fitting(pattern)} for some in (select, ignore)
    )
    names = (wanted or rules_by_name().keys()) - unwanted
    return [entry for entry in list_rules() if entry.rule.name in names]


def _list_fitting(pattern: str) -> list[Registered]:
    rules = list_rules()
    if fits := [one for one in rules if fnmatchcase(one.rule.name, pattern) or one.rule.category == pattern.lower()]:
        return fits
    advice = suggestion(pattern, rules_by_name())
    raise NcclInspectError(f"no rule '{pattern}'", advice or "see 'nccl-inspect rules' for names and categories")


class Mark(Frozen):
    """The marks of rules on a path."""

    rules: tuple[str, ...] = ()  # those whose findings are about it
    is_open: bool = False  # whether one of them could not judge it


class Results:
    """The findings of all rules, and the questions that they leave open."""

    def __init__(self, paths: Paths) -> None:
        self.marking = [0] * len(paths)  # for each path the index of its entry in the marks
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
            self._mark(result.paths)
        else:
            self.findings.append(result)
            self._effects.update(map(id, result.explained))
            self._mark(result.open_paths)
            self._mark(result.paths, result.rule)

    def _mark(self, paths: Selection | None, *rules: str) -> None:
        """Say of some paths that a rule has a finding about them; without a rule, that they could not be judged."""
        before = self.marks
        places: dict[int, int] = {}
        for row in paths.rows if paths is not None else ():
            old = self.marking[row]
            if old not in places:
                known = before[old]
                mark = Mark(tuple(dict.fromkeys((*known.rules, *rules))), known.is_open or not rules)
                places[old] = self._marks.setdefault(mark, len(self._marks))
            self.marking[row] = places[old]


def run_rules(facts: Facts, rules: Iterable[Registered]) -> Results:
    """Run the rules, in the order of :func:`list_rules`: those that judge the job, then those that explain findings."""
    rules = list(rules)
    collected = Results(facts.job.paths)
    for entry, results in [(entry, list(entry.judge(facts))) for entry in rules if entry.judge]:
        for result in results:
            if isinstance(result, Finding):  # without steps for clouds where the job does not run
                result = result.with_fields(fix=networks.applicable(facts, result.fix, entry.rule.cloud))
            collected.add(result)
    present = {finding.rule for finding in collected.findings}
    effects = [finding for finding in collected.findings if present.isdisjoint(superseding(finding.rule))]
    for results in [list(entry.explain(facts, effects)) for entry in rules if entry.explain]:
        for result in results:
            collected.add(result)  # a file beside the log names the steps that help
    return collected
