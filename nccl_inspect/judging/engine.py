"""What a rule is, and which ones there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pathlib import Path as File
from typing import NamedTuple

from nccl_inspect.errors import NcclInspectError, suggestion
from nccl_inspect.judging.facts import ends, first_lines, first_said, hosts_in, hosts_of, ranks_in
from nccl_inspect.judging.impact import Estimate
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, Needs, NotJudged
from nccl_inspect.model.job import Notice, Selection
from nccl_inspect.util.discovery import modules
from nccl_inspect.util.records import Record
from nccl_inspect.util.text import cut

SEVERITIES = ("info", "warning", "error")
CATEGORIES = (
    "intra-node path",
    "network",
    "gpudirect",
    "plugins",
    "bootstrap",
    "environment",
    "topology",
    "failures",
    "log quality",
)
_RULES = File(__file__).parents[1] / "rules"
"""Each module there is a rule."""
_MAX_EVIDENCE = 5
_MAX_SUMMARY = 300
"""Characters; a summary may quote a message of any length, and the evidence holds all of it."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rule(Record):
    """What a rule is; what it found is a :class:`~nccl_inspect.model.finding.Finding`."""

    name: str
    category: str
    severity: str
    """The usual severity; a finding may have another one, by its effect."""
    title: str
    """What is wrong, in one line."""
    causes: tuple[str, ...] = ()
    """Rules, as names or globs, whose findings this one may explain: it is named as their cause."""
    echoes: tuple[str, ...] = ()
    """Rules, as names or globs, whose findings are only effects of this one: it leads, and they fold under it."""
    supersedes: tuple[str, ...] = ()
    """Rules, as names or globs, that are less specific: where this one finds something, theirs are dropped."""
    leads: bool = False
    """Found only where it came first: what else ends the job is its effect, except for the rules that echo it."""
    upsets: bool = False
    """What the same process reports after it is its effect, whatever that is elsewhere."""
    ends: bool = False
    """It tells why the job ended: that makes the headline before what only costs time."""
    symptom: bool = False
    """It tells where something failed, not why: each other finding that tells why the job ended leads before it."""
    folds: bool = False
    """A cause that is told under the slow path it leads to, when there is one: the effect makes the headline."""
    cloud: str = ""
    """The vendor whose machines it is about: where it finds something, the job runs there."""
    explains: tuple[str, ...] = ()
    """Rules whose findings a file beside the log may explain: ``judge`` gets these findings, and says which ones it
    explains."""
    local: bool = False
    """The fault lies with the ranks and hosts that it names; they do not merely suffer from that of others."""

    def finding(
        self,
        summary: str,
        *,
        cause: str,
        impact: str | Estimate,
        fix: Iterable[str],
        severity: str | None = None,
        confidence: str = "certain",
        notices: Iterable[Notice] = (),
        paths: Selection | None = None,
        ranks: Iterable[int] | None = None,
        hosts: Iterable[str | None] | None = None,
        evidence: Iterable[Evidence] | None = None,
        open_paths: Selection | None = None,
        explains_errors: Iterable[Notice] = (),
        fatal: bool = False,
        open_end: bool = False,
    ) -> Finding:
        """A finding of this rule: one for each cause, with its evidence cut to the first lines.

        Args:
            summary: what is wrong, in one line.
            cause: why.
            impact: what it costs.
            fix: what must be changed, step by step.
            severity: by its effect; None for that of the rule.
            confidence: in the cause.
            notices: what was printed about it.
            paths: that it is about: they are no better than it says.
            ranks: that it is about; None for those of the notices and at the ends of the paths.
            hosts: likewise.
            evidence: the lines that show it; None for the first line of each notice and path.
            open_paths: that cannot be judged because of it.
            explains_errors: errors that need no other explanation, besides those in the evidence.
            fatal: the job is dead or stuck.
            open_end: fatal, though no line proves that the log goes on to the end of the job.
        """
        notices = list(notices)
        if ranks is None:
            ranks = ranks_in(notices) | (ends(paths) if paths else set())
        if hosts is None:
            hosts = hosts_in(notices) | (hosts_of(paths) if paths else set())
        if evidence is None:
            evidence = [*first_said(notices), *(first_lines(paths) if paths else ())]
        return Finding(
            rule=self.name,
            category=self.category,
            severity=severity or self.severity,
            confidence=confidence,
            summary=cut(" ".join(summary.split()), _MAX_SUMMARY),
            cause=cause,
            impact=str(impact),
            references=list(impact.references) if isinstance(impact, Estimate) else [],
            fix=list(fix),
            ranks=sorted(set(ranks)),
            hosts=sorted({host for host in hosts if host}),
            evidence=_in_order(evidence)[:_MAX_EVIDENCE],
            paths=paths,
            open_paths=open_paths,
            explained=list(explains_errors),
            fatal=fatal,
            open_end=open_end,
        )

    def clue(
        self,
        summary: str,
        *,
        cause: str,
        impact: str | Estimate,
        fix: Iterable[str],
        confirm: str,
        severity: str | None = None,
        confidence: str = "likely",
        notices: Iterable[Notice] = (),
        ranks: Iterable[int] | None = None,
        hosts: Iterable[str | None] | None = None,
        evidence: Iterable[Evidence] | None = None,
        open_paths: Selection | None = None,
        explains_errors: Iterable[Notice] = (),
    ) -> Finding:
        """A finding that rests on a statement, a setting or an inventory: the log does not show the effect.

        It never makes the verdict of a job ``degraded`` or ``failed``; where nothing else does, the verdict is
        ``unknown``, and the headline leads with the strongest clue.

        Args:
            summary: what the log suggests, in one line.
            cause: why.
            impact: what it costs if it is so.
            fix: what must be changed, step by step.
            confirm: what would confirm or refute it: a line to look for, a command, a setting for the next run.
            severity: that of the effect, one step lower; None for that of the rule.
            confidence: ``likely`` where the statement hardly leaves another reading, else ``possible``.
            notices: what was printed about it.
            ranks: that it is about; None for those of the notices.
            hosts: likewise.
            evidence: the lines that suggest it; None for the first line of each notice.
            open_paths: that cannot be judged because of it.
            explains_errors: errors that need no other explanation, besides those in the evidence.
        """
        found = self.finding(
            summary,
            cause=cause,
            impact=impact,
            fix=fix,
            severity=severity,
            confidence=confidence,
            notices=notices,
            ranks=ranks,
            hosts=hosts,
            evidence=evidence,
            open_paths=open_paths,
            explains_errors=explains_errors,
        )
        found.clue = True
        found.confirm = confirm
        return found

    def undecided(self, reason: str, needs: Needs, paths: Selection | None = None) -> NotJudged:
        """A question that the log leaves open, with what would answer it and the paths that stay unjudged."""
        return NotJudged(self.name, reason, needs, paths)

    @property
    def page(self) -> str:
        """The Markdown page of the rule."""
        return (_RULES / f"{self.name.replace('-', '_')}.md").read_text(encoding="utf-8")


def _in_order(evidence: Iterable[Evidence]) -> list[Evidence]:
    """Each line once: one may tell of a rank both that it waited and that it lags."""
    lines = {(line.source, line.order): line for line in evidence}
    return [lines[place] for place in sorted(lines)]


class Effects(NamedTuple):
    """Errors that are only effects of something else, whether a finding shows that or not."""

    errors: list[Notice]


Result = Finding | NotJudged | Effects
"""What a rule returns."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Registered(Record):
    """A rule with its judgement."""

    rule: Rule
    judge: Callable[..., Iterable[Result]]
    """Takes the facts, and the findings that it may explain where its rule ``explains`` some."""


@cache
def registered() -> tuple[Registered, ...]:
    """All rules, ordered by category and name."""
    found = []
    for name in modules(str(_RULES / "__init__.py")):
        loaded = import_module(f"nccl_inspect.rules.{name}")
        found.append(Registered(loaded.RULE, loaded.judge))
    return tuple(sorted(found, key=lambda entry: (CATEGORIES.index(entry.rule.category), entry.rule.name)))


def selected(select: Iterable[str] = (), ignore: Iterable[str] = ()) -> list[Registered]:
    """The rules that are to run.

    Args:
        select: names, globs or categories; nothing selects all.
        ignore: likewise, taken away from the selected.

    Raises:
        NcclInspectError: a pattern fits no rule.
    """
    wanted, unwanted = _expand(select), _expand(ignore)
    return [
        entry for entry in registered() if (not wanted or entry.rule.name in wanted) and entry.rule.name not in unwanted
    ]


def _expand(patterns: Iterable[str]) -> set[str]:
    names: set[str] = set()
    for pattern in patterns:
        fits = {
            entry.rule.name
            for entry in registered()
            if fnmatchcase(entry.rule.name, pattern) or entry.rule.category == pattern.lower()
        }
        if not fits:
            known = [entry.rule.name for entry in registered()]
            raise NcclInspectError(
                f"no rule '{pattern}'",
                suggestion(pattern, known) or "see 'nccl-inspect rules' for names and categories",
            )
        names |= fits
    return names
