"""Which collectives and send/recv a job calls, how often and how large (subsystem COLL)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nccl_inspect.model.communicators.members import Member, ProcessMembers
from nccl_inspect.model.fold.call_counts import PAIRED, CallKey, Tally
from nccl_inspect.model.inventory import Calls


def gathered(processes: Iterable[ProcessMembers], global_rank: Callable[[Member], int | None]) -> list[Calls]:
    """The calls of a job. All ranks of a communicator make the same collective calls, so each is counted once."""
    by_slot: dict[tuple[object, ...], Calls] = {}
    for process in processes:
        for key, tally in process.log.calls.items():
            member = _member(process, key, tally)
            calls = _calls(key, tally, member, global_rank(member) if member else None)
            calls.leader = process.log.process if member and member.init.rank == 0 else None
            own = calls.ranks if calls.func in PAIRED else ()
            slot = (calls.communicator, key.nranks, key.func, key.datatype, calls.root, key.size_class, *own)
            total = by_slot.setdefault(slot, calls)
            if total is not calls:
                _join(total, calls)
    return sorted(by_slot.values(), key=lambda calls: (calls.place, calls.func))


def _member(process: ProcessMembers, key: CallKey, tally: Tally) -> Member | None:
    """Return whose calls they are.

    Pointers are used again, so the communicator must live from the first to the last.
    """
    fits = [
        member
        for member in process.members
        if member.init.comm == key.comm
        and member.init.nranks == key.nranks
        and member.lives_at(tally.first)
        and member.lives_at(tally.last)
    ]
    return fits[0] if len(fits) == 1 else None


def _calls(key: CallKey, tally: Tally, member: Member | None, rank: int | None) -> Calls:
    comm = member.communicator if member else None
    ranks = comm.global_ranks if comm else ()
    return Calls(
        communicator=comm.name if comm else None,
        func=key.func,
        datatype=key.datatype,
        nranks=key.nranks,
        root=ranks[key.root] if key.root is not None and key.root < len(ranks) else None,
        calls=tally.calls,
        elements=tally.elements,
        smallest=tally.smallest,
        largest=tally.largest,
        ranks=[rank] if rank is not None else [],
        place=tally.first,
    )


def _join(mine: Calls, other: Calls) -> None:
    """Join the same calls as another rank prints them; a log that was cut short has fewer."""
    if other.calls > mine.calls:
        mine.calls, mine.elements = other.calls, other.elements
    mine.smallest = min(mine.smallest, other.smallest)
    mine.largest = max(mine.largest, other.largest)
    mine.ranks = sorted({*mine.ranks, *other.ranks})
    mine.place = min(mine.place, other.place)
    mine.leader = mine.leader or other.leader
