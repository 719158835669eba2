"""Processes with NCCL, by pid or by rank."""

from __future__ import annotations

from nccl_inspect.judging.facts import Facts, once
from nccl_inspect.model.inventory import LastLine
from nccl_inspect.util.grouping import grouped


def with_pid(facts: Facts, pid: int | None) -> list[LastLine]:
    """The processes with a pid: several if hosts or containers count separately."""
    return by_pid(facts).get(pid, []) if pid else []


@once
def by_pid(facts: Facts) -> dict[int, list[LastLine]]:
    """All processes, by pid."""
    return grouped((last.process.pid, last) for last in facts.job.last_lines)


def place(facts: Facts, rank: int) -> tuple[str | None, int | None]:
    """Host and pid of a rank, if it has one process without other ranks."""
    here = _by_rank(facts).get(rank, [])
    return (here[0].process.host, here[0].process.pid) if len(here) == 1 else (None, None)


@once
def _by_rank(facts: Facts) -> dict[int, list[LastLine]]:
    return grouped((last.ranks[0], last) for last in facts.job.last_lines if len(last.ranks) == 1)
