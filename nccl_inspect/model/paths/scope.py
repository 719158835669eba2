"""Whether two ranks are on one host, from what the log proves and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property

from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.communicators.members import Member
from nccl_inspect.model.paths.ends import Line


class Scope:
    """Decides whether two ranks are on one host.

    Args:
        devices: the GPUs of ranks by their spaces, as connection lines name them.
        hosts: of ranks, by space and rank.
        communicators: for what NCCL says of nodes.
        nodes_are_hosts: False when shared memory is switched off: then NCCL counts ranks of one host as several nodes.
    """

    def __init__(
        self,
        devices: Iterable[tuple[str, int, str | None]],
        hosts: Mapping[tuple[str, int], str],
        communicators: Sequence[Communicator],
        nodes_are_hosts: bool,
    ) -> None:
        self._nodes_are_hosts = nodes_are_hosts
        self._hosts = hosts
        self._by_name = {comm.name: comm for comm in communicators}
        self._are_ambiguous = cache(_names_are_ambiguous)
        self._has_one_each = cache(_has_one_each)
        self._full: dict[tuple[str, str, str], bool] = {}
        self._by_host: dict[str, dict[str, list[Member]]] = {}
        self._named = devices

    @cached_property
    def _ranks(self) -> dict[tuple[str, str], set[int]]:
        """The ranks on each host."""
        ranks: dict[tuple[str, str], set[int]] = {}
        for (space, rank), name in self._hosts.items():
            ranks.setdefault((space, name), set()).add(rank)
        return ranks

    @cached_property
    def _devices(self) -> dict[tuple[str, str, str], set[int]]:
        """The ranks that have a GPU of a host."""
        ranks: dict[tuple[str, str, str], set[int]] = {}
        for space, rank, device in self._named:
            host = self._hosts.get((space, rank))
            if host is not None and device is not None:
                ranks.setdefault((space, host, device), set()).add(rank)
        return ranks

    def of_way(self, way: Iterable[Line]) -> str:
        """Return what the lines of all communicators state, where they agree."""
        scopes = {self.of(line) for line in {line.communicator: line for line in way}.values()} - {"unknown"}
        return scopes.pop() if len(scopes) == 1 else "unknown"

    def of(self, line: Line) -> str:
        """``intra``, ``inter`` or ``unknown``."""
        if line.event.is_local:
            return "intra"
        hosts = [self._hosts.get((line.space, rank)) for rank in (line.src, line.dst)]
        comm = self._by_name.get(line.communicator)
        if None not in hosts:
            if hosts[0] != hosts[1]:
                return "inter"
            return "unknown" if comm and self._nodes_are_hosts and self._are_ambiguous(comm) else "intra"
        if comm and self._nodes_are_hosts and self._has_one_each(comm):
            return "inter"
        seen = hosts[0] if hosts[0] is not None else hosts[1]
        if seen is None:
            return "unknown"
        unseen, device = (line.dst, line.dst_dev) if hosts[1] is None else (line.src, line.src_dev)
        if comm and self._is_full(comm, line.space, seen):
            return "inter"
        # NCCL refuses two ranks on one GPU, so a device that a rank of that host has is another host's.
        others = self._devices.get((line.space, seen, device or ""), set()) - {unseen}
        return "inter" if others else "unknown"

    def _is_full(self, comm: Communicator, space: str, host: str) -> bool:
        """Whether the ranks that are known to be on a host are as many as NCCL counts there."""
        key = comm.name, space, host
        if key not in self._full:
            sizes = {member.shape.local_ranks for member in self._members(comm).get(host, ()) if member.shape}
            on_host = (
                self._ranks.get((space, host), set()).intersection(comm.global_ranks) if len(sizes) == 1 else set()
            )
            self._full[key] = len(sizes) == 1 and sizes.pop() == len(on_host)
        return self._full[key]

    def _members(self, comm: Communicator) -> dict[str, list[Member]]:
        """The members of a communicator by host."""
        if comm.name not in self._by_host:
            by_host = self._by_host[comm.name] = {}
            for member in comm.members.values():
                by_host.setdefault(member.log.process[0], []).append(member)
        return self._by_host[comm.name]


def _has_one_each(comm: Communicator) -> bool:
    """Whether NCCL counts a node for each rank."""
    return comm.nnodes == comm.nranks


def _names_are_ambiguous(comm: Communicator) -> bool:
    """NCCL counts more nodes than there are host names: names like ``localhost`` do not distinguish hosts."""
    names = {member.log.process[0] for member in comm.members.values()}
    return comm.nnodes is not None and len(comm.members) == comm.nranks and comm.nnodes > len(names)
