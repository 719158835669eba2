"""What happened to a job, in order. Plain data; reports read it."""

from __future__ import annotations

from dataclasses import field

from nccl_inspect.model.evidence import Evidence
from nccl_inspect.util.records import Record, record


@record
class Entry(Record):
    """One thing that happened to some ranks."""

    what: str
    ranks: list[int]
    hosts: list[str]
    line: Evidence
    """The first line that shows it."""
    count: int
    """How often it happened."""
    because: int | None
    """The place in the story of what explains it; None of what it began with."""
    rule: str | None
    """The rule whose page is about it."""
    host_of: dict[int, str] = field(default_factory=dict)
    """Where these ranks run, as far as their processes are known; hosts of the job may count ranks in another way."""
