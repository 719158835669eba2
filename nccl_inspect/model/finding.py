"""What rules say of a job. Plain data; reports read it."""

from __future__ import annotations

from dataclasses import dataclass, field

from nccl_inspect.model.evidence import Evidence
from nccl_inspect.records import Record


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Culprit(Record):
    """What the bad paths or ranks of a finding have in common and the good ones lack."""

    kind: str
    """``host``, ``gpu``, ``nic``, ``rail``, ``rank``, ``communicator``, ``setting`` or ``version``."""
    name: str
    bad: int
    """How many of the bad ones it has."""
    of: int
    """How many there are that have it, good or bad."""
    good_elsewhere: int
    """How many good ones do not have it."""
    side: str | None = None
    """``send`` or ``receive`` where only paths that begin or end there are bad."""
    ranks: list[int] = field(default_factory=list)
    """The ranks that it is or that have it."""


@dataclass(slots=True, eq=False, repr=False)
class Finding(Record):
    """One thing that a rule found."""

    rule: str
    category: str
    severity: str
    """``error``, ``warning`` or ``info``."""
    confidence: str
    """``certain``, ``likely`` or ``possible``."""
    summary: str
    cause: str
    impact: str
    fix: list[str]
    ranks: list[int] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    root: bool = True
    because: list[str] = field(default_factory=list)
    fatal: bool = False
    """The job is dead or stuck."""
    clue: bool = False
    """It rests on a statement, a setting or an inventory; the log does not show the effect."""
    confirm: str = ""
    """What would confirm it; empty where the log proves it."""
    culprits: list[Culprit] = field(default_factory=list)
    """Best first; empty where the fault is everywhere."""
    where: str = ""
    """The culprits in words, with the numbers inside and outside."""
    explains: list[str] = field(default_factory=list)
    """Rules whose findings are effects of this one, as a file beside the log shows."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Suppressed(Record):
    """A finding that the user knows and accepts: it counts for nothing and is still told."""

    finding: Finding
    reason: str
    """Why it is accepted, in the user's words."""


@dataclass(slots=True, eq=False, repr=False)
class NotJudged(Record):
    """What a rule could not decide, and what would tell."""

    rule: str
    reason: str
    needs: str
