"""What the counts of RAS show of its ranks: which came last, and for which they may wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nccl_inspect.artifacts.ras import Answer, Member


def ranks(answer: Answer) -> dict[int, int]:
    """Return the rank of each process in the communicators of all, where these have the same one."""
    by_pid: dict[int, set[int]] = {}
    for member in (member for comm_id in answer.whole for member in answer.members.get(comm_id, ())):
        if member.pid is not None:
            by_pid.setdefault(member.pid, set()).add(member.rank)
    return {pid: min(own) for pid, own in by_pid.items() if len(own) == 1}


def last_to_come(answer: Answer) -> list[Member]:
    """Ranks that launched fewer operations than others in some communicator, and more in none.

    One that launched more waits there for the others.
    """
    late: dict[tuple[str | None, int], Member] = {}
    ahead: set[tuple[str | None, int]] = set()
    for mismatch in answer.mismatches:
        behind = {member.rank for member in mismatch.behind}
        for member in mismatch.members:
            # Without its process a rank is known in its communicator only.
            key = (None, member.pid) if member.pid is not None else (mismatch.comm_id, member.rank)
            if member.rank in behind:
                late.setdefault(key, member)
            else:
                ahead.add(key)
    return [member for key, member in late.items() if key not in ahead]


def ranks_in_step(answer: Answer, pid: int) -> list[Member]:
    """Return the other ranks of communicators in which all launched as many operations as this process."""
    differing = {mismatch.comm_id for mismatch in answer.mismatches}
    found: dict[int, Member] = {}
    for comm_id, members in answer.members.items():
        is_in_step = answer.launched.get(comm_id) and comm_id not in differing
        if is_in_step and any(member.pid == pid for member in members):
            found |= {member.pid: member for member in members if member.pid is not None and member.pid != pid}
    return list(found.values())
