"""An incident: what happened to processes at one place of the log, with its layer; and which of two came first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from nccl_inspect.grammar.layers import FOREIGN, Layer
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Notice
from nccl_inspect.story.actors import Actor
from nccl_inspect.util.records import Slotted, record
from nccl_inspect.util.times import line_seconds

_SLACK = 1.5
"""Seconds within which the order of lines says more than times: many lines have whole seconds only."""


@record
class Incident(Slotted):
    """An incident is one thing that happened to processes."""

    kind: str
    """Of what happened, or the rule that found it."""
    layer: Layer
    """How near to a cause it is."""
    actors: frozenset[Actor]
    """To whom it happened; empty where the line does not say."""
    line: Evidence | None
    words: str
    """Those of the line or the finding."""
    peers: frozenset[Actor] = frozenset()
    """Whom it names as gone, late or different."""
    is_report: bool = False
    """Whether another one said it afterwards: its place in the log is not when it happened."""
    is_kill: bool = False
    """Whether nothing in the process leads to such an end: a signal, or a hardware fault."""
    confidence: str = "certain"
    finding: Finding | None = None
    notice: Notice | None = None
    teller: str = ""
    """The rule that tells it, where another one tells the others of its kind."""
    because: list[Incident] = field(default_factory=list)
    effects: int = 0
    """How many incidents it explains."""
    block: str = ""
    """The host whose lines stand together in the source: then the order of lines of two hosts says nothing."""
    is_foreign: bool = field(init=False)
    """Whether a process says it of others."""
    gave_up: bool = field(init=False)
    """Whether a process aborted, as one does that gave up waiting, and its own words are missing."""
    time: float | None = field(init=False)
    """When its line was printed, in seconds of the year; None where the line has no time."""

    def __post_init__(self) -> None:
        self.is_foreign = self.layer in FOREIGN
        self.gave_up = self.layer == Layer.END and self.words.endswith("SIGABRT")
        self.time = line_seconds(self.line.text) if self.line else None

    @property
    def is_condition(self) -> bool:
        """Return whether it is how things are and no event: nothing in the log leads to it."""
        return self.is_report and self.finding is not None and self.layer == Layer.SETTING

    @property
    def is_launchers_signal(self) -> bool:
        """Return whether a launcher ended a process, as it does where another one failed or ended."""
        return self.notice is not None and "ends-worker" in self.notice.roles

    @property
    def is_signal(self) -> bool:
        """Return whether it is a signal to end processes, when that was sent."""
        return self.layer == Layer.LAUNCHER and not self.is_report

    @property
    def lags(self) -> bool:
        """Return whether others wait for its peers, by the progress of all."""
        return bool(self.peers) and self.layer == Layer.PROGRAM and self.is_report

    @property
    def is_retold(self) -> bool:
        """Return whether a program only passes on an error of CUDA that a rule judges where it occurred."""
        text = self.notice.message if self.notice else self.words
        return self.finding is None and ("CUDA error: " in text or "CUDA_ERROR_" in text)

    @property
    def position(self) -> tuple[float, str, int]:
        """Return what sorts incidents where nothing else does."""
        return (self.time or 0.0, self.line.source if self.line else "", self.line.order if self.line else 0)


class Order:
    """Order sorts incidents by time where it is known, else by lines."""

    def __init__(self, incident: Incident) -> None:
        self.incident = incident

    def __lt__(self, other: Order) -> bool:
        one, other_one = self.incident, other.incident
        known = before(one, other_one)
        return known if known is not None else one.position[1:] < other_one.position[1:]


def before(one: Incident, other: Incident) -> bool | None:
    """Return whether one happened before another; None where the log does not show it."""
    times = one.time, other.time
    if times[0] is not None and times[1] is not None and abs(times[0] - times[1]) > _SLACK:
        return times[0] < times[1]
    if one.line and other.line and one.line.source == other.line.source and one.block == other.block:
        return one.line.order < other.line.order
    if times[0] is not None and times[1] is not None and times[0] != times[1]:
        return times[0] < times[1]
    return None


def first_of(incidents: Iterable[Incident]) -> Incident | None:
    """Return the first of some incidents; None of none."""
    return min(incidents, key=Order, default=None)
