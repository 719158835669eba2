"""One of several jobs in an input, in brief. Plain data; part of the worst job."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding
from nccl_inspect.util.records import Record, record

if TYPE_CHECKING:
    from nccl_inspect.model.job import Job


VERDICTS = ("failed", "degraded", "unknown", "ok")
"""The worst first."""


@record
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
