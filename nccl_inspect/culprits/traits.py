"""The traits of paths, connection ends and ranks: hosts, GPUs, NICs, rails, communicators, settings and versions.

Traits are numbers, so that sets of them are small and fast; the traits of an end are built once per rank and NIC.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from nccl_inspect.model.connection import SIDES, End
from nccl_inspect.model.job import Job, PathKind, Selection

_COLUMNS = {"send": ("src_host", "src", "src_gpu"), "receive": ("dst_host", "dst", "dst_gpu")}
_NONE: frozenset[int] = frozenset()


class Trait(NamedTuple):
    """Something that a path, an end or a rank can have."""

    kind: str
    """As in :class:`~nccl_inspect.model.finding.Culprit`."""
    name: str
    side: str | None = None
    """``send`` or ``receive`` if it counts at that end of paths only."""


Nics = frozenset[tuple[str | None, int | None]]
"""Names and numbers of the NICs of an end."""


class Traits:
    """The traits of a job's paths and ranks.

    Args:
        job: that they are of.
        by_rank: settings and versions of each rank, as kind and name.
        with_nics: whether NICs and rails of paths count.
    """

    def __init__(self, job: Job, by_rank: Mapping[int, Sequence[tuple[str, str]]], *, with_nics: bool = False) -> None:
        self._job, self._by_rank, self._with_nics = job, by_rank, with_nics
        self.known: list[Trait] = []
        """By number."""
        self.ranks: list[set[int]] = []
        """The ranks with each trait."""
        self._numbers: dict[Trait, int] = {}
        self._ends: dict[tuple[object, ...], frozenset[int]] = {}
        self._comms: dict[str, int] = {}
        self._host_of = {rank: host.name for host in job.hosts for rank in host.ranks}
        self._has_ranks = job.rank_space == "global" or len(job.communicators) < 2
        """Otherwise a number may mean ranks of several communicators."""

    def of_each(self, paths: Selection) -> list[Set[int]]:
        """The traits of each path, at any end and at a specific one."""
        comms = [{self._communicator(name) for name in names} for (names,) in paths.values("communicators")]
        ends = ([self._end(side, *end) for end in _ends(paths, side, self._with_nics)] for side in SIDES)
        return [traits.union(*both) for traits, *both in zip(comms, *ends, strict=True)]

    def of_paths(self, paths: Selection, wanted: Set[int]) -> Iterator[Set[int]]:
        """Yield those of some traits that each path has; paths without any are skipped."""
        kinds = {self.known[trait].kind for trait in wanted}
        with_nics = self._with_nics and not kinds.isdisjoint(("nic", "rail"))
        comms = {name: frozenset([trait]) for name, trait in self._comms.items() if trait in wanted}
        few = {side: _Few(self, side, wanted) for side in SIDES}
        ends = (map(few[side].of, _ends(paths, side, with_nics)) for side in SIDES)
        for send, receive, (names,) in zip(*ends, paths.values("communicators"), strict=True):
            traits = send | receive
            if comms:
                traits = traits.union(*(comms.get(name, _NONE) for name in names))
            if traits:
                yield traits

    def of_ends(self, paths: Selection, test: Callable[[End], object]) -> list[Set[int]]:
        """The traits of the ends of network connections that pass a test."""
        traits: list[Set[int]] = []
        for side in SIDES:

            def passing(kind: PathKind, side: str = side) -> tuple[End, ...]:
                return tuple(end for end in kind.ends(side) if test(end))

            for (host, rank, gpu, ends), number in Counter(paths.values(*_COLUMNS[side], passing)).items():
                for end in ends:
                    traits += [self._end(side, host, rank, gpu, frozenset([(end.nic, end.nic_index)]))] * number
        return traits

    def of_rank(self, rank: int, nics: Iterable[tuple[str, str]] = ()) -> Set[int]:
        """The traits of a rank."""
        host = self._host_of.get(rank)
        things = [*_host(host), ("rank", str(rank)), *self._by_rank.get(rank, ())]
        things += [("nic", f"{where} {nic}") for where, nic in nics]
        return {self._number(Trait(*thing), rank) for thing in things}

    def of_hosts(self, hosts: Iterable[str], host: str | None = None, nic: str | None = None) -> Set[int]:
        """Return what hosts have, of which no rank is known.

        Args:
            hosts: one, or two with a transfer between them.
            host: the one of them whose NIC is known.
            nic: its name.
        """
        things = [thing for end in hosts for thing in _host(end)]
        if nic:
            things += [("rail", nic), *(("nic", f"{name} {nic}") for _, name in _host(host))]
        return {self._number(Trait(*thing), None) for thing in things}

    def _end(self, side: str, host: str | None, rank: int, gpu: str | None, nics: Nics) -> frozenset[int]:
        key = (side, host, rank, nics)
        cached = self._ends.get(key)
        if cached is None:
            labels = [name or f"NIC {index}" for name, index in nics if name or index is not None]
            things = [*_host(host), *self._gpu(host, rank, gpu)]
            things += [("nic", f"{name} {label}") for _, name in _host(host) for label in labels]
            both = [*self._by_rank.get(rank, ()), *(("rail", label) for label in labels)]
            traits = {self._number(Trait(*thing, of_side), rank) for thing in things for of_side in (None, side)}
            traits |= {self._number(Trait(*thing), rank) for thing in both}
            cached = self._ends[key] = frozenset(traits)
        return cached

    def _gpu(self, host: str | None, rank: int, bracket: str | None) -> list[tuple[str, str]]:
        """The GPU of a rank from its init lines, else from connection lines; the rank if neither names it."""
        if not self._has_ranks:
            return []
        gpu_info = self._job.gpus.get(rank)
        name = bracket
        if gpu_info is not None:
            name = str(gpu_info.nvml_dev) if gpu_info.nvml_dev is not None else gpu_info.bus_id or bracket
        return [("gpu", f"{place} GPU {name}") for _, place in _host(host) if name] or [("rank", str(rank))]

    def _communicator(self, name: str) -> int:
        number = self._comms.get(name)
        if number is None:
            number = self._comms[name] = self._number(Trait("communicator", name), None)
        return number

    def _number(self, trait: Trait, rank: int | None) -> int:
        number = self._numbers.get(trait)
        if number is None:
            number = self._numbers[trait] = len(self.known)
            self.known.append(trait)
            self.ranks.append(set())
        if rank is not None:
            self.ranks[number].add(rank)
        return number


class _Few:
    """Holds what ends of one side have of some traits."""

    def __init__(self, traits: Traits, side: str, wanted: Set[int]) -> None:
        self._traits, self._side, self._wanted = traits, side, wanted
        self._known: dict[object, frozenset[int]] = {}

    def of(self, end: tuple[str | None, int, str | None, Nics]) -> frozenset[int]:
        """The wanted traits of the end of a path, cached."""
        cached = self._known.get(end)
        if cached is None:
            cached = self._known[end] = self._traits._end(self._side, *end).intersection(self._wanted)
        return cached


def _ends(paths: Selection, side: str, with_nics: bool) -> Iterator[tuple[str | None, int, str | None, Nics]]:
    """Host, rank, GPU and NICs of one end of each path."""

    def nics(kind: PathKind) -> Nics:
        return frozenset([(end.nic, end.nic_index) for end in kind.ends(side)]) if with_nics else frozenset()

    return paths.values(*_COLUMNS[side], nics)


def _host(name: str | None) -> list[tuple[str, str]]:
    """The host, where it has a name: where prefixes were taken out of the log, a question mark stands for it."""
    return [("host", name)] if name is not None and not name.startswith("?") else []
