"""What bad paths, connection ends or ranks have in common and good ones lack: no rule and no word is in here.

:class:`Traits` says what a path, an end or a rank has: hosts, GPUs, NICs, rails, communicators, settings, versions.
Traits are numbers, so that sets of them are small and fast; the traits of an end are built once per rank and NIC.

:func:`explain` finds the fewest traits that explain all that is bad: one that does it alone, else a greedy cover. A
trait explains what is bad if that is rare without it and common with it. What merely goes along with a fault by
construction is not named: the innocent partner of a bad host has good paths to others, and of two hosts that have only
each other the log cannot decide between them. The time grows with the number of traits of all that is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from math import ceil, sqrt
from typing import NamedTuple

from nccl_inspect.model.job import Job, PathKind, Selection
from nccl_inspect.model.paths.path import SIDES, End
from nccl_inspect.util.records import Frozen, frozen

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

    def list_each(self, paths: Selection) -> list[Set[int]]:
        """Return the traits of each path, at any end and at a specific one."""
        comms = [{self._communicator(name) for name in names} for (names,) in paths.values("communicators")]
        ends = ([self._end(side, *end) for end in _ends(paths, side, self._with_nics)] for side in SIDES)
        return [traits.union(*both) for traits, *both in zip(comms, *ends, strict=True)]

    def select_paths(self, paths: Selection, wanted: Set[int]) -> Iterator[Set[int]]:
        """Yield those of some traits that each path has; paths without any are skipped."""
        kinds = {self.known[trait].kind for trait in wanted}
        with_nics = self._with_nics and not kinds.isdisjoint(("nic", "rail"))
        comms = {name: frozenset([trait]) for name, trait in self._comms.items() if trait in wanted}
        few = {side: _Few(self, side, wanted) for side in SIDES}
        ends = (map(few[side].select, _ends(paths, side, with_nics)) for side in SIDES)
        for send, receive, (names,) in zip(*ends, paths.values("communicators"), strict=True):
            traits = send | receive
            if comms:
                traits = traits.union(*(comms.get(name, _NONE) for name in names))
            if traits:
                yield traits

    def list_ends(self, paths: Selection, test: Callable[[End], object]) -> list[Set[int]]:
        """Return the traits of the ends of network connections that pass a test."""
        traits: list[Set[int]] = []
        for side in SIDES:

            def passing(kind: PathKind, side: str = side) -> tuple[End, ...]:
                return tuple(end for end in kind.ends(side) if test(end))

            for (host, rank, gpu, ends), number in Counter(paths.values(*_COLUMNS[side], passing)).items():
                for end in ends:
                    traits += [self._end(side, host, rank, gpu, frozenset([(end.nic, end.nic_index)]))] * number
        return traits

    def list_rank(self, rank: int, nics: Iterable[tuple[str, str]] = ()) -> Set[int]:
        """Return the traits of a rank."""
        host = self._host_of.get(rank)
        things = [*_host(host), ("rank", str(rank)), *self._by_rank.get(rank, ())]
        things += [("nic", f"{where} {nic}") for where, nic in nics]
        return {self._number(Trait(*thing), rank) for thing in things}

    def list_hosts(self, hosts: Iterable[str], host: str | None = None, nic: str | None = None) -> Set[int]:
        """Return what hosts have, of which no rank is known.

        Args:
            hosts: one, or two with a transfer between them.
            host: the one of them whose NIC is known.
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
        """Return the GPU of a rank from its init lines, else from connection lines; the rank if neither names it."""
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

    def select(self, end: tuple[str | None, int, str | None, Nics]) -> frozenset[int]:
        """Return the wanted traits of the end of a path, cached."""
        cached = self._known.get(end)
        if cached is None:
            cached = self._known[end] = self._traits._end(self._side, *end).intersection(self._wanted)
        return cached


def _ends(paths: Selection, side: str, with_nics: bool) -> Iterator[tuple[str | None, int, str | None, Nics]]:
    """Yield host, rank, GPU and NICs of one end of each path."""

    def nics(kind: PathKind) -> Nics:
        return frozenset([(end.nic, end.nic_index) for end in kind.ends(side)]) if with_nics else frozenset()

    return paths.values(*_COLUMNS[side], nics)


def _host(name: str | None) -> list[tuple[str, str]]:
    """Return the host, where it has a name: where prefixes were taken out of the log, a question mark stands for it."""
    return [("host", name)] if name is not None and not name.startswith("?") else []


MOST = 4
"""Culprits named together at most; a fault with more of them is everywhere."""
_ALL = 0.95
"""The part of the bad ones that must be explained: a cut or torn log may hide the traits of a few."""
_LEAST = 0.05
"""The part of the bad ones that each of several culprits must explain."""
_EACH = 0.8
"""Factor on the score for each further culprit: three that fit are better than one that half fits."""
_SOUND = 0.25
"""The least score of an explanation."""
_PURE, _FEW = 0.9, 4
"""The part of its bearers that is bad of a trait that needs no other proof; else chance must be excluded."""
_THINGS = ("host", "gpu", "nic", "rail", "rank")
"""Kinds whose culprits cover at most half: more than half is simply the job."""
_BESIDE = ("setting", "version")
_BESIDE_NIC = ("gpu", "rank", *_BESIDE)
"""Kinds that add to a culprit if they coincide with it: with rails, each GPU has a NIC of its own."""


@frozen
class Population(Frozen):
    """The bad and the good ones to compare: the traits of each, by number."""

    bad: Sequence[Set[int]]
    good: Callable[[Set[int]], Iterable[Set[int]]]
    """Those of some traits that the good ones have; good ones without any may be left out."""
    goods: int
    """How many good ones there are."""
    fewest: int = 2
    """How many bad ones a trait must explain."""
    hidden: Set[str] = frozenset()
    """Kinds known for the bad ones only."""


@frozen
class Count(Frozen):
    """Holds how many bad and good ones have a trait."""

    trait: int
    bad: int
    good: int


@frozen
class Attribution(Frozen):
    """An explanation."""

    culprits: list[Count]
    """Best first; empty if nothing explains it."""
    beside: list[Count]
    """Traits that exactly the same ones have: the setting or version of a bad host."""
    explained: int
    """How many bad ones it explains."""


_UNEXPLAINED = Attribution([], [], 0)


def explain(group: Population, traits: Sequence[Trait], order: Sequence[str]) -> Attribution:
    """Return the best explanation.

    Args:
        group: what is bad and what is good.
        order: of the kinds of traits; among those that explain the same, the first is named.
    """
    if not group.bad or not group.goods:
        return _UNEXPLAINED
    telling = {count.trait: count for count in _counts(group) if _is_significant(count, group)}
    having = _having(group.bad, telling)
    pool = _Pool(telling, having, traits, order)
    least = max(group.fewest, ceil(_LEAST * len(group.bad)))
    tried = (pool.find_sufficient(ceil(_ALL * len(group.bad))), pool.cover(len(group.bad), least))
    best = max(tried, key=_worth)
    if _worth(best) < _SOUND or _are_most(best, traits, group.hidden):
        return _UNEXPLAINED
    explained: set[int] = set().union(*(having[count.trait] for count in best))
    named = sorted(best, key=lambda count: (-count.bad, count.good, *pool.sort_key(count.trait)))
    return Attribution(named, pool.beside(best, explained), len(explained))


def _counts(group: Population) -> list[Count]:
    """Return the counts of the traits that enough bad ones have."""
    bad = Counter(trait for traits in group.bad for trait in traits)
    floor = max(group.fewest, ceil(_LEAST * len(group.bad)))
    wanted = {trait for trait, number in bad.items() if number >= floor}
    good = Counter(trait for traits in group.good(wanted) for trait in traits)
    return [Count(trait, bad[trait], good[trait]) for trait in sorted(wanted)]


def _is_significant(count: Count, group: Population) -> bool:
    """Return whether more of its bearers are bad than by chance, and some good ones lack it."""
    bad, good = len(group.bad), group.goods
    inside, without = count.bad + count.good, bad + good - count.bad - count.good
    if count.good == good or count.bad / inside <= (bad - count.bad) / without:
        return False
    expected = inside * bad / (bad + good)
    return count.bad >= _PURE * inside or (count.bad >= _FEW and count.bad >= expected + 3 * sqrt(expected))


def _having(bad: Sequence[Set[int]], telling: Collection[int]) -> dict[int, set[int]]:
    """Return the bad ones that have each trait."""
    having: dict[int, set[int]] = {trait: set() for trait in telling}
    for place, traits in enumerate(bad):
        for trait in traits:
            if trait in having:
                having[trait].add(place)
    return having


def _worth(culprits: Sequence[Count]) -> float:
    """Return the score of culprits: the bad part of their bearers, reduced for each further culprit."""
    if not culprits:
        return 0.0
    bad, good = sum(count.bad for count in culprits), sum(count.good for count in culprits)
    return float(bad / (bad + good) * _EACH ** (len(culprits) - 1))


def _are_most(culprits: Sequence[Count], traits: Sequence[Trait], hidden: Set[str]) -> bool:
    """Return whether culprits are more than half of all things of their kind."""
    named = Counter(traits[count.trait].kind for count in culprits)
    things = Counter(kind for kind, _ in {(trait.kind, trait.name) for trait in traits})
    return any(2 * number > things[kind] for kind, number in named.items() if kind in _THINGS and kind not in hidden)


class _Pool:
    """The traits that may be culprits."""

    def __init__(
        self, telling: dict[int, Count], having: dict[int, set[int]], traits: Sequence[Trait], order: Sequence[str]
    ) -> None:
        self._telling, self._having, self._traits = telling, having, traits
        self._order = {kind: place for place, kind in enumerate(order)}

    def find_sufficient(self, least: int) -> list[Count]:
        """Return the one trait that best explains that many."""
        able = [count for count in self._telling.values() if count.bad >= least]
        worths = {count.trait: count.bad / (count.bad + count.good) for count in able}
        best = self._pick_first(worths, self._having)
        return [] if best is None else [self._telling[best]]

    def cover(self, bad: int, least: int) -> list[Count]:
        """Return several traits that together explain all, each the best for the rest; empty if there are too many.

        If several are equally good, each is tried first: if the results differ, only names would decide.
        """
        return self._cover(set(range(bad)), (1 - _ALL) * bad, least, MOST)

    def _cover(self, left: set[int], unexplained: float, least: int, most: int) -> list[Count]:
        new = {trait: having & left for trait, having in self._having.items()}
        scores = {
            trait: len(some) * (len(some) / (len(some) + self._telling[trait].good)) ** 2
            for trait, some in new.items()
            if len(some) >= least
        }
        best = self._pick_first(scores, new)
        if best is None:
            return []
        tried = []
        equals = [other for other in self._alike(best, scores) if self._is_sided(other) == self._is_sided(best)]
        for trait in sorted((best, *equals), key=self.sort_key)[: most + 1]:
            rest = left - new[trait]
            done = len(rest) <= unexplained
            others = [] if done or most == 1 else self._cover(rest, unexplained, least, most - 1)
            if not done and not others:
                return []
            tried.append([self._telling[trait], *others])
        return tried[0] if all(set(combination) == set(tried[0]) for combination in tried) else []

    def beside(self, culprits: Sequence[Count], explained: set[int]) -> list[Count]:
        """Return other traits with exactly the bearers of the only culprit."""
        if len(culprits) != 1:
            return []
        (named,) = culprits
        kinds = _BESIDE_NIC if self._traits[named.trait].kind == "nic" else _BESIDE
        return [
            count
            for count in sorted(self._telling.values(), key=lambda count: self.sort_key(count.trait))
            if count.trait != named.trait
            and self._traits[count.trait].kind in kinds
            and self._traits[count.trait].side == self._traits[named.trait].side
            and count.good == named.good
            and self._having[count.trait] == explained
        ]

    def _pick_first(self, scores: dict[int, float], having: dict[int, set[int]]) -> int | None:
        """Return the trait with the best score, unless another trait of its kind explains as much."""
        for trait in sorted(scores, key=lambda trait: (-scores[trait], self.sort_key(trait))):
            if not any(having[trait] == having[other] for other in self._alike(trait, scores)):
                return trait
        return None

    def _alike(self, trait: int, scores: dict[int, float]) -> list[int]:
        """Return others of its kind with the same score."""
        kind, name, _ = self._traits[trait]
        alike = [other for other in scores if scores[other] == scores[trait] and self._traits[other].kind == kind]
        return [other for other in alike if self._traits[other].name != name]

    def _is_sided(self, trait: int) -> bool:
        return self._traits[trait].side is not None

    def sort_key(self, trait: int) -> tuple[int, bool, str]:
        """Return the sort key if all else is equal."""
        kind, name, side = self._traits[trait]
        return self._order[kind], side is not None, name
