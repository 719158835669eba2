"""The first lines of every report: what happened, where, since when, and what to do now. Plain data."""

from __future__ import annotations

from dataclasses import field

from nccl_inspect.util.records import Record, record


@record
class Place(Record):
    """Holds where a rank runs, as far as the log shows."""

    rank: int | None
    host: str | None = None
    pid: int | None = None
    pod: str | None = None
    """Only where a collector names it."""
    gpu: int | None = None


@record
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
