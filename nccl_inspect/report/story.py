"""What happened to a job, in order, as reports print it: at most six lines with file and line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from nccl_inspect.model.job import Job
from nccl_inspect.model.story import Entry
from nccl_inspect.report.digest import short_names
from nccl_inspect.report.words import shortened
from nccl_inspect.util.grouping import grouped
from nccl_inspect.util.wording import count, ranks_word

_VERBS = ("was ", "raised ", "ended ", "waited ", "lost ", "fell ", "gave ", "died")
"""How a sentence continues after its subject."""
_MOST_HOSTS = 2
_MOST_ROWS = 64
"""Rows of a table by rank; of more ranks each host has one, and of more hosts the first are shown."""


class StoryLine(NamedTuple):
    """A line of the story is one thing that happened."""

    where: str
    """File and line."""
    text: str
    is_lead: bool


def lines(job: Job) -> list[StoryLine]:
    """Return the story of a job, first where it began."""
    names = short_names(job)
    return [_line(entry, names) for entry in job.story]


def in_one(job: Job) -> str:
    """Return the story of a job in one line."""
    return "; then ".join(f"{line.text} ({line.where})" if line.where else line.text for line in lines(job))


class StoryRow(NamedTuple):
    """A row is a rank, or the ranks of a host, with what happened to it."""

    host: str
    who: str
    marks: list[bool]
    """For each line of the story whether it is about it."""


def rows(job: Job) -> list[StoryRow]:
    """Return the ranks that the story names, by host; of many the hosts."""
    told = {rank for entry in job.story for rank in entry.ranks}
    hosts = job.hosts if job.rank_space == "global" else []
    placed = {rank: host.name for host in hosts for rank in host.ranks}
    placed |= {rank: host for entry in job.story for rank, host in entry.host_of.items()}
    if len(told) > _MOST_ROWS:
        by_host = grouped((placed[rank], rank) for rank in sorted(told) if rank in placed)
        return [_row(job, host, ranks_word(ranks), ranks) for host, ranks in by_host.items()][:_MOST_ROWS]
    order = sorted(told, key=lambda rank: (rank not in placed, placed.get(rank, ""), rank))
    return [_row(job, placed.get(rank, ""), f"rank {rank}", [rank]) for rank in order]


def _row(job: Job, host: str, who: str, ranks: Iterable[int]) -> StoryRow:
    return StoryRow(host, who, [not set(ranks).isdisjoint(entry.ranks) for entry in job.story])


def _line(entry: Entry, names: dict[str, str]) -> StoryLine:
    where = f"{names.get(entry.line.source, entry.line.source)}:{entry.line.line}" if entry.line.source else ""
    times = f" ({count(entry.count, 'time')})" if entry.count > 1 else ""
    return StoryLine(where, f"{_sentence(entry)}{times}", entry.because is None)


def _sentence(entry: Entry) -> str:
    who = ranks_word(entry.ranks) if entry.ranks else shortened(entry.hosts, _MOST_HOSTS)
    if not who or entry.what.startswith(("rank ", "ranks ", "RAS ")):
        return f"a process {entry.what}" if entry.what.startswith(_VERBS) else entry.what
    what = re.sub("^was ", "were ", entry.what) if len(entry.ranks or entry.hosts) > 1 else entry.what
    return f"{who} {what}" if entry.what.startswith(_VERBS) else f"{who}: {what}"
