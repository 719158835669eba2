"""Processes with NCCL, by pid or by rank."""

from __future__ import annotations

from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.inventory import LastLine


def with_pid(facts: Facts, pid: int | None) -> list[LastLine]:
    """The processes with a pid: several if hosts or containers count separately."""
    return facts.cached(by_pid).get(pid, []) if pid else []


def by_pid(facts: Facts) -> dict[int, list[LastLine]]:
    """All processes, by pid."""
    processes: dict[int, list[LastLine]] = {}
    for last in facts.job.last_lines:
        processes.setdefault(last.process.pid, []).append(last)
    return processes


def place(facts: Facts, rank: int) -> tuple[str | None, int | None]:
    """Host and pid of a rank, if it has one process without other ranks."""
    here = facts.cached(_by_rank).get(rank, [])
    return (here[0].process.host, here[0].process.pid) if len(here) == 1 else (None, None)


def _by_rank(facts: Facts) -> dict[int, list[LastLine]]:
    processes: dict[int, list[LastLine]] = {}
    for last in facts.job.last_lines:
        if len(last.ranks) == 1:
            processes.setdefault(last.ranks[0], []).append(last)
    return processes
