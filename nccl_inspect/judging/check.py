"""What the checks of rules find: values for the pages, and no sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from nccl_inspect.judging.exceptions import came_up_below
from nccl_inspect.judging.facts import Facts, first_evidence, first_of_each
from nccl_inspect.judging.statements import value
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Notice, Selection, Setting
from nccl_inspect.util.records import Frozen

if TYPE_CHECKING:
    from nccl_inspect.judging.evidence.workloads import Case

__all__ = (
    "Account",
    "Effects",
    "Evidence",
    "Facts",
    "Finding",
    "Hit",
    "Notice",
    "first_evidence",
    "tell_account",
    "value",
)
"""What nearly every check needs, in one import."""


class Hit(Frozen):
    """A hit holds what a rule that is a page found: values, and no sentence."""

    notices: list[Notice] = field(default_factory=list)
    named: Mapping[str, object] = field(default_factory=dict)
    """What names in braces stand for, besides fields of the statements: words, or values that have words; what is not
    empty is so, for the conditions of cases."""
    ranks: Iterable[int] | None = None
    """These, the hosts and the evidence: None for those of the statements, settings and paths. A hit without any of
    these is about the hosts of its ranks."""
    hosts: Iterable[str | None] | None = None
    evidence: Iterable[Evidence | Notice | Setting] | None = None
    """Lines, or statements and settings, whose first lines they are."""
    paths: Selection | None = None
    open_paths: Selection | None = None
    """The paths that cannot be judged because of it."""
    settings: list[Setting] = field(default_factory=list)
    explains: list[Notice] = field(default_factory=list)
    """Errors that need no other explanation, besides the statements."""
    effects: Sequence[Finding] = ()
    """What files beside the log explain,"""
    cases: Sequence[Case] = ()
    """and the containers in them with the fault."""
    confidence: str | None = None
    """Instead of what the page states."""
    open_end: bool = False
    """Whether no line proves that the log reaches the end of the job."""


class Effects(Frozen):
    """Errors that are only effects of something else, whether or not a finding shows that."""

    errors: list[Notice]


class Account(Frozen):
    """Some ranks of the story of a job, for the rule that finds the words."""

    kind: str
    words: str
    """The first statement about it."""
    ranks: list[int]
    hosts: list[str]
    who: str
    """They in words; empty where the log does not show them."""
    confidence: str
    evidence: list[Evidence]
    effects: str
    """What followed, in words; empty for nothing."""
    pids: list[int] = field(default_factory=list)
    is_partial: bool = False
    """Whether it happened to some ranks, and others waited for them or lost them."""

    @property
    def sentence(self) -> str:
        """Return who, and what happened to them."""
        if not self.who and self.words.startswith("raised "):
            return f"a process {self.words}"
        if not self.who or self.who in self.words:
            return self.words
        is_verb = self.kind in ("process-ended", "process-killed") and len(self.ranks) == 1
        return f"{self.who} {self.words}" if is_verb else f"{self.who}: {self.words}"


def tell_account(_: Facts, account: Account) -> Hit:
    """Return what the story of a job tells, in the words that pages have for it."""
    return Hit(
        named={
            "account": account.sentence,
            "effects": account.effects,
            "blamed": account.who,
            "who": account.who or "every rank",
            "partial": account.is_partial,
        },
        ranks=account.ranks,
        hosts=account.hosts,
        evidence=account.evidence,
        confidence=account.confidence,
    )


def is_fatal(facts: Facts, notices: Iterable[Notice], deadly: bool = False) -> bool:
    """Return whether a call of NCCL failed, peers were lost after it, or no connection came up despite it.

    A job does not survive what is ``deadly``, even with its communicators up. Peers may be lost before a line that is
    printed late, such as an event of Kubernetes.
    """
    if facts.job.failed:
        return True
    if facts.is_over():
        return False
    notices = list(notices)
    first = first_of_each(notice.evidence[0] for notice in notices)
    # A communicator does not survive the loss of a rank.
    losses = [loss.evidence[0] for loss in facts.notices("nccl/socket-closed-by-peer")]
    is_told_late = any("told-late" in notice.roles for notice in notices)
    if deadly or (is_told_late and losses) or any(line.order > first.get(line.source, line.order) for line in losses):
        return True
    return not facts.job.paths and not all(came_up_below(facts, notice) for notice in notices)
