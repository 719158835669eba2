"""Joins members whose lines do not name their communicator: roots until 2.16.1, splits without a parent or an ordinal.

Such members are put together by what their connection lines say of each other: the host and the GPU of a neighbour.
What stays ambiguous stays apart: a communicator in pieces is better than one of ranks that never met.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nccl_inspect.model.communicators.members import Member


class Claim(NamedTuple):
    """Holds what a member says of another rank of its communicator."""

    host: str | None
    """Its host, where the connection proves it."""
    device: str | None
    """Its GPU as the bracket names it."""


def claims(member: Member) -> dict[int, list[Claim]]:
    """Return what the connections that a member made inside its START and COMPLETE say of its neighbours."""
    by_rank: dict[int, list[Claim]] = {}
    for burst in member.bursts:
        for edge in burst.edges.values():
            event = edge.event
            outward = event.direction != "receive"
            other, device = (event.dst, event.dst_dev) if outward else (event.src, event.src_dev)
            if other is not None and other != member.rank:
                host = member.log.process.host if event.is_local else None
                by_rank.setdefault(other, []).append(Claim(host, device))
    return by_rank


class Joiner:
    """Puts members of one size together.

    Args:
        members: that may be of one communicator or of several, in the order of the log.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._claims = {id(member): claims(member) for member in members}

    def groups(self) -> list[list[Member]]:
        """The members of each communicator, or of each piece of one."""
        if self.agree(self._members):
            return [list(self._members)]
        turns: Counter[object] = Counter()
        by_turn: dict[int, list[Member]] = {}
        for member in self._members:
            by_turn.setdefault(turns[member.gpu], []).append(member)
            turns[member.gpu] += 1
        groups: list[list[Member]] = []
        rest: list[list[Member]] = []
        for group in by_turn.values():
            whole = len(group) == group[0].init.nranks and self.agree(group)
            (groups if whole else rest).append(group)
        left = [member for group in rest for member in group]
        # A neighbour on another host may be missing, and another one pass for it, unless all find each other.
        pieces = self._linked(left, local_only=False)
        if any(len(piece) < piece[0].init.nranks for piece in pieces):
            pieces = self._linked(left, local_only=True)
        return [*groups, *pieces]

    def agree(self, group: Sequence[Member]) -> bool:
        """Whether these can be one communicator: each rank once, each GPU once, no claim against another."""
        ranks = {member.rank: member for member in group}
        if len(ranks) < len(group) or len({member.gpu for member in group}) < len(group):
            return False
        pairs = ((member, ranks[rank]) for member in group for rank in self._claims[id(member)] if rank in ranks)
        return all(self._accepts(member, mate) for member, mate in pairs)

    def _accepts(self, member: Member, mate: Member) -> bool:
        return all(_fits(claim, mate) for claim in self._claims[id(member)].get(mate.rank, ()))

    def _linked(self, members: Sequence[Member], *, local_only: bool) -> list[list[Member]]:
        """Members joined by claims that only one GPU meets."""
        group_of = {id(member): [member] for member in members}
        by_rank: dict[int, list[Member]] = {}
        for member in members:
            by_rank.setdefault(member.rank, []).append(member)
        for member in members:
            for rank, claims_on_rank in self._claims[id(member)].items():
                if local_only and not any(claim.host for claim in claims_on_rank):
                    continue
                mate = self._mate(member, by_rank.get(rank, ()), by_rank[member.rank])
                if mate is None or group_of[id(mate)] is group_of[id(member)]:
                    continue
                joined = group_of[id(member)] + group_of[id(mate)]
                if self.agree(joined):
                    group_of.update((id(linked), joined) for linked in joined)
        return list({id(group): group for group in group_of.values()}.values())

    def _mate(self, member: Member, others: Iterable[Member], alike: Iterable[Member]) -> Member | None:
        """The only GPU that a claim can mean, if that can mean this one only; the same pair again comes in turn."""
        mates = self._both_ways(member, others)
        if not mates or not _is_one_gpu(mates):
            return None
        mine = self._both_ways(mates[0], alike)
        if not _is_one_gpu(mine) or len(mine) != len(mates):
            return None
        return mates[mine.index(member)] if member in mine else None

    def _both_ways(self, member: Member, others: Iterable[Member]) -> list[Member]:
        return [mate for mate in others if self._accepts(member, mate) and self._accepts(mate, member)]


def _is_one_gpu(members: Sequence[Member]) -> bool:
    return len({(member.log.process.host, member.gpu.device) for member in members}) == 1


def _fits(claim: Claim, mate: Member) -> bool:
    if claim.host is not None and claim.host != mate.log.process.host:
        return False
    return mate.is_called(claim.device)
