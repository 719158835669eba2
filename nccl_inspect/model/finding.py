"""What rules say of a job, and what a report begins with. Plain data; reports read it."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from nccl_inspect.model.evidence import Evidence
from nccl_inspect.util.records import Frozen, Record

if TYPE_CHECKING:
    from nccl_inspect.model.job import Job, Notice, Selection

ACTIONS = ("drain-host", "fix-then-restart", "restart", "wait", "none")
"""What to do about a job; for ``none`` there is nothing to do for a program that restarts jobs."""


class Culprit(Frozen):
    """Holds what the bad paths or ranks of a finding have in common and the good ones lack."""

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


class Reference(Frozen):
    """Holds where a figure comes from."""

    figure: str
    what: str
    """Whose figure that is, or how it was found."""
    link: str
    """Where it can be read: an address, or a page of the documentation."""

    def __str__(self) -> str:
        return f"{self.figure}: {self.what}: {self.link}"


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
    fatal_anyway: bool = False
    """Fatal whatever the cause is, which may be only possible."""
    open_end: bool = False
    """Fatal by what the log shows, though no line proves that the log goes on to the end of the job."""
    clue: bool = False
    """It rests on a statement, a setting or an inventory; the log does not show the effect."""
    action: str = ""
    """One of :data:`ACTIONS`; from its rule what the page states, and nothing where that states none."""
    confirm: str = ""
    """What would confirm it; empty where the log proves it."""
    explains: list[str] = field(default_factory=list)
    """Rules whose findings are its effects in this job."""
    culprits: list[Culprit] = field(default_factory=list)
    """Best first; empty where the fault is everywhere."""
    references: list[Reference] = field(default_factory=list)
    """Where the figures in its impact come from."""
    where: str = ""
    """The culprits in words, with the numbers inside and outside."""
    paths: Selection | None = field(default=None, compare=False)
    """The paths that it is about."""
    open_paths: Selection | None = field(default=None, compare=False)
    """Paths that cannot be judged because of it."""
    explained: list[Notice] = field(default_factory=list, compare=False)
    """Errors that it explains, besides those among its evidence."""


class Suppressed(Frozen):
    """A finding that the user knows and accepts: it does not count and is still reported."""

    finding: Finding
    reason: str
    """Why it is accepted, in the user's words."""


class Needs(Frozen):
    """Holds what would answer an open question: reports print it, and one command captures it."""

    log: str = ""
    """Which lines of the log, in words."""
    all_ranks: bool = False
    """The lines of every rank are needed."""
    subsystems: tuple[str, ...] = ()
    """For ``NCCL_DEBUG_SUBSYS``."""
    shows: str = ""
    """What these subsystems show."""
    platform: bool = False
    """The machine type answers it."""
    topology: bool = False
    """What joins the GPUs of a host answers it."""
    others: tuple[str, ...] = ()
    """Commands, files and what only people know, in words."""

    def __str__(self) -> str:
        ways = ("--platform NAME" * self.platform, "--topology with the output of nvidia-smi topo -m" * self.topology)
        subsystems = f"NCCL_DEBUG_SUBSYS={','.join(self.subsystems)}" if self.subsystems else ""
        purpose = f" shows {self.shows}" if self.shows else ""
        return "; ".join(filter(None, (self.log, ", or ".join(filter(None, ways)), subsystems + purpose, *self.others)))


class NotJudged(Record):
    """Holds what a rule could not decide, and what would show it."""

    rule: str
    reason: str
    lacks: Needs
    paths: Selection | None = field(default=None, compare=False)
    """Paths that cannot be judged without an answer."""

    @property
    def needs(self) -> str:
        """Return what would show it, in words."""
        return str(self.lacks)


class Place(Record):
    """Holds where a rank runs, as far as the log shows."""

    rank: int | None
    host: str | None = None
    pid: int | None = None
    pod: str | None = None
    """Only where a collector names it."""
    gpu: int | None = None


class Head(Record):
    """Holds what somebody who is called at night reads first; texts are plain sentences, ``do`` is a step of a fix."""

    headline: str
    """The verdict with what it rests on."""
    rule: str | None = None
    """The rule whose finding leads; None where an error without a rule does, or nothing."""
    where: str = ""
    """The culprit, or the ranks, with host, pid, pod, GPU and NIC; empty where unknown, or where it is everywhere."""
    since: str = ""
    """The first line that shows it, and the last line of the log."""
    do: str = ""
    """The one thing to do now; empty where there is nothing to do."""
    places: list[Place] = field(default_factory=list)
    """Those of ``where``, for programs."""

    @property
    def word(self) -> str:
        """Return the word that the headline begins with: the verdict."""
        return self.headline.partition(":")[0].partition(",")[0]


class Entry(Record):
    """One thing that happened to some ranks."""

    what: str
    ranks: list[int]
    hosts: list[str]
    line: Evidence
    """The first line that shows it."""
    count: int
    """How often it happened to the process to which it happened most often; of no known process, how often at all."""
    because: int | None
    """The place in the story of what explains it; None of what it began with."""
    rule: str | None
    """The rule whose page is about it."""
    host_of: dict[int, str] = field(default_factory=dict)
    """Where these ranks run, as far as their processes are known; hosts of the job may count ranks in another way."""


VERDICTS = ("failed", "degraded", "unknown", "ok")
"""The worst first."""


class Standing(Record):
    """One of several jobs in an input, in brief."""

    number: int
    """From 1, in the order of their first lines."""
    name: str
    verdict: str
    reason: str
    """What the verdict rests on."""
    ranks: int | None
    """The size of its world, or else of ranks seen; None where the log names none."""
    hosts: list[str]
    nccl_versions: list[str]
    first: Evidence
    """The first line of its processes; the text is the time of it, where it has one."""
    last: Evidence
    finding: Finding | None
    """The worst one."""
    severity: str = ""
    """The highest of all findings; empty where there is none."""
    detail: Job | None = field(default=None, compare=False)
    """The job itself, of the worst few only; the worst of all holds what is said here in turn."""
