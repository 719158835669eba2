"""The processes of NCCL that reports name, by pid or by rank."""

from __future__ import annotations

from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.inventory import LastLine


def with_pid(facts: Facts, pid: int | None) -> list[LastLine]:
    """The processes that have a pid: several where hosts or containers count anew."""
    return facts.once(by_pid).get(pid, []) if pid else []


def by_pid(facts: Facts) -> dict[int, list[LastLine]]:
    """All processes."""
    found: dict[int, list[LastLine]] = {}
    for last in facts.job.last_lines:
        found.setdefault(last.process.pid, []).append(last)
    return found


def place(facts: Facts, rank: int) -> tuple[str | None, int | None]:
    """Host and pid of a rank, where it has one process, and no other rank is in it."""
    here = facts.once(_by_rank).get(rank, [])
    return (here[0].process.host, here[0].process.pid) if len(here) == 1 else (None, None)


def _by_rank(facts: Facts) -> dict[int, list[LastLine]]:
    found: dict[int, list[LastLine]] = {}
    for last in facts.job.last_lines:
        if len(last.ranks) == 1:
            found.setdefault(last.ranks[0], []).append(last)
    return found
