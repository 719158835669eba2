"""The culprits of findings: what the bad paths, connection ends or ranks have in common and the good ones lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from math import ceil, sqrt
from typing import NamedTuple

from nccl_inspect.event import types as events
from nccl_inspect.grammar import engine as grammar
from nccl_inspect.grammar.layers import FOREIGN
from nccl_inspect.judging import culprit_words as words
from nccl_inspect.judging import transfers
from nccl_inspect.judging.engine import Results
from nccl_inspect.judging.facts import Facts, once
from nccl_inspect.judging.statements import value
from nccl_inspect.model.finding import Culprit, Finding
from nccl_inspect.model.job import Job, Notice, PathKind, Selection, Setting
from nccl_inspect.model.paths.path import SIDES, End
from nccl_inspect.util.patterns import compile_later
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
        things = [*_named_host(host), ("rank", str(rank)), *self._by_rank.get(rank, ())]
        things += [("nic", f"{where} {nic}") for where, nic in nics]
        return {self._number(Trait(*thing), rank) for thing in things}

    def list_hosts(self, hosts: Iterable[str], host: str | None = None, nic: str | None = None) -> Set[int]:
        """Return what hosts have, of which no rank is known.

        Args:
            hosts: one, or two with a transfer between them.
            host: the one of them whose NIC is known.
        """
        things = [thing for end in hosts for thing in _named_host(end)]
        if nic:
            things += [("rail", nic), *(("nic", f"{name} {nic}") for _, name in _named_host(host))]
        return {self._number(Trait(*thing), None) for thing in things}

    def _end(self, side: str, host: str | None, rank: int, gpu: str | None, nics: Nics) -> frozenset[int]:
        key = (side, host, rank, nics)
        cached = self._ends.get(key)
        if cached is None:
            labels = [name or f"NIC {index}" for name, index in nics if name or index is not None]
            things = [*_named_host(host), *self._gpu(host, rank, gpu)]
            things += [("nic", f"{name} {label}") for _, name in _named_host(host) for label in labels]
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
        return [("gpu", f"{place} GPU {name}") for _, place in _named_host(host) if name] or [("rank", str(rank))]

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


def _named_host(name: str | None) -> list[tuple[str, str]]:
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
class TraitCount(Frozen):
    """Holds how many bad and good ones have a trait."""

    trait: int
    bad: int
    good: int


@frozen
class Explanation(Frozen):
    """An explanation."""

    culprits: list[TraitCount]
    """Best first; empty if nothing explains it."""
    beside: list[TraitCount]
    """Traits that exactly the same ones have: the setting or version of a bad host."""
    explained: int
    """How many bad ones it explains."""


_UNEXPLAINED = Explanation([], [], 0)


def explain(group: Population, traits: Sequence[Trait], order: Sequence[str]) -> Explanation:
    """Return the best explanation.

    Args:
        group: what is bad and what is good.
        order: of the kinds of traits; among those that explain the same, the first is named.
    """
    if not group.bad or not group.goods:
        return _UNEXPLAINED
    telling = {count.trait: count for count in _count_traits(group) if _is_significant(count, group)}
    having = _having(group.bad, telling)
    pool = _Pool(telling, having, traits, order)
    least = max(group.fewest, ceil(_LEAST * len(group.bad)))
    tried = (pool.find_sufficient(ceil(_ALL * len(group.bad))), pool.cover(len(group.bad), least))
    best = max(tried, key=_worth)
    kinds = Counter(traits[count.trait].kind for count in best)
    things = Counter(kind for kind, _ in {(trait.kind, trait.name) for trait in traits})
    counting = [kind for kind in kinds if kind in _THINGS and kind not in group.hidden]
    if _worth(best) < _SOUND or any(2 * kinds[kind] > things[kind] for kind in counting):  # most are simply the job
        return _UNEXPLAINED
    explained: set[int] = set().union(*(having[count.trait] for count in best))
    named = sorted(best, key=lambda count: (-count.bad, count.good, *pool.sort_key(count.trait)))
    return Explanation(named, pool.beside(best, explained), len(explained))


def _count_traits(group: Population) -> list[TraitCount]:
    """Return the counts of the traits that enough bad ones have."""
    bad = Counter(trait for traits in group.bad for trait in traits)
    floor = max(group.fewest, ceil(_LEAST * len(group.bad)))
    wanted = {trait for trait, number in bad.items() if number >= floor}
    good = Counter(trait for traits in group.good(wanted) for trait in traits)
    return [TraitCount(trait, bad[trait], good[trait]) for trait in sorted(wanted)]


def _is_significant(count: TraitCount, group: Population) -> bool:
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


def _worth(culprits: Sequence[TraitCount]) -> float:
    """Return the score of culprits: the bad part of their bearers, reduced for each further culprit."""
    if not culprits:
        return 0.0
    bad, good = sum(count.bad for count in culprits), sum(count.good for count in culprits)
    return float(bad / (bad + good) * _EACH ** (len(culprits) - 1))


class _Pool:
    """The traits that may be culprits."""

    def __init__(
        self, telling: dict[int, TraitCount], having: dict[int, set[int]], traits: Sequence[Trait], order: Sequence[str]
    ) -> None:
        self._telling, self._having, self._traits = telling, having, traits
        self._order = {kind: place for place, kind in enumerate(order)}

    def find_sufficient(self, least: int) -> list[TraitCount]:
        """Return the one trait that best explains that many."""
        able = [count for count in self._telling.values() if count.bad >= least]
        worths = {count.trait: count.bad / (count.bad + count.good) for count in able}
        best = self._pick_first(worths, self._having)
        return [] if best is None else [self._telling[best]]

    def cover(self, bad: int, least: int) -> list[TraitCount]:
        """Return several traits that together explain all, each the best for the rest; empty if there are too many.

        If several are equally good, each is tried first: if the results differ, only names would decide.
        """
        return self._cover(set(range(bad)), (1 - _ALL) * bad, least, MOST)

    def _cover(self, left: set[int], unexplained: float, least: int, most: int) -> list[TraitCount]:
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

    def beside(self, culprits: Sequence[TraitCount], explained: set[int]) -> list[TraitCount]:
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


_OF_PATHS = ("host", "nic", "gpu", "rank", "rail", "communicator", "setting", "version")
_OF_RANKS = ("nic", "host", "rank", "gpu", "rail", "communicator", "setting", "version")
"""The preference among traits that explain the same. A rank reports its own fault, and names its NIC."""
_OF_MESSAGES = frozenset(("nic", "rail"))
"""Kinds that only the complaining ranks name."""
_STEERS = compile_later(
    r"NCCL_(?:\w+_(?:DISABLE|ENABLE|LEVEL)|(?:NET|TUNER)(?:_PLUGIN)?|ALGO|PROTO|CROSS_NIC|IB_HCA|SOCKET_IFNAME|TOPO_FILE)"
)
"""Variables that select connections; others that only some ranks print may be effects of their connections."""
_MOST_VALUES = 3
"""Values of a variable; one with more differs by design, such as one that names each host's interface."""
_TCP = ("Socket", "FastSocket")
_DEVICES = ("device", "hca", "name")
"""Fields of messages that name a NIC."""


def locate(facts: Facts, results: Results, findings: Iterable[Finding], names_fault: Callable[[Finding], bool]) -> None:
    """Add the culprits to findings, with a sentence and a first step.

    Args:
        results: of all rules: which paths are bad.
        names_fault: says whether the fault is in the ranks and hosts that a finding names.
    """
    findings = list(filter(_is_doubtful, findings))
    against = {finding.rule: finding.category for finding in findings}
    for finding in findings:
        if finding.paths:
            compared = _Compared(facts, results, finding, finding.paths, against)
            _add_culprits(facts, finding, compared.ends() if compared.is_one_sided() else compared.paths())
        elif broken := transfers.failed_transfers(facts, _notices(facts, finding)):
            _add_culprits(facts, finding, _pairs(facts, broken))
        elif names_fault(finding):
            # Lines of ranks that waited for others or lost them do not count, unless they name a NIC of their own.
            names = (notice.production.partition("/") for notice in _notices(facts, finding))
            is_of_others = any(grammar.find_layer(dialect, name) in FOREIGN for dialect, _, name in names)
            if _nics(facts, finding) or not is_of_others:
                _add_culprits(facts, finding, _ranks(facts, finding))


def _is_doubtful(finding: Finding) -> bool:
    """Return whether something may be wrong: a certain info needs no inspection."""
    return finding.severity != "info" or finding.confidence == "possible"


@frozen
class _Case(Frozen):
    """The comparison for a finding."""

    group: Population
    traits: Traits
    order: Sequence[str]
    scene: words.Scene


def _add_culprits(facts: Facts, finding: Finding, case: _Case) -> None:
    """Add the culprits to the finding, if there are any."""
    explanation = explain(case.group, case.traits.known, case.order)
    good = case.group.goods
    ranks_of = {host.name: host.ranks for host in facts.job.hosts}

    def culprit(count: TraitCount) -> Culprit:
        kind, name, side = case.traits.known[count.trait]
        ranks = ranks_of[name] if kind == "host" and name in ranks_of else sorted(case.traits.ranks[count.trait])
        return Culprit(kind, name, count.bad, count.bad + count.good, good - count.good, side, ranks)

    named, beside = ([culprit(count) for count in counts] for counts in (explanation.culprits, explanation.beside))
    # A setting that the finding is about explains its paths, but neither says more, nor is it lacking elsewhere.
    lines = "\n".join(line.text for line in finding.evidence)
    is_stated = any(one.kind == "setting" and one.name.partition("=")[0] in lines for one in named)
    if not named or (is_stated and not facts.job.paths):
        return
    finding.culprits = [*named, *beside]
    scene = case.scene.with_fields(bad=len(case.group.bad), good=good, explained=explanation.explained)
    finding.where = words.line(named, beside, scene, facts.job)
    step = words.step(named, beside, scene, facts.job)
    if step and finding.severity != "info" and not is_stated:
        finding.fix = [step, *finding.fix]


class _Compared:
    """The paths of a finding and the good ones that it could have been about."""

    def __init__(
        self, facts: Facts, results: Results, finding: Finding, bad: Selection, against: dict[str, str]
    ) -> None:
        self._facts, self._finding, self._bad = facts, finding, bad
        scopes = {kind.scope for kind in bad.kinds}
        self._scope = "intra" if scopes == {"intra"} else "inter" if scopes == {"inter"} else "any"
        # Multi-node NVLink does not count as a working network, but findings about local paths compare with it.
        on_network = all(kind.transport == "NET" for kind in bad.kinds) and finding.category != "intra-node path"
        faults = {rule for rule, category in against.items() if category == finding.category}
        fastest, slowest = min(map(_slowness, bad.kinds)), max(map(_slowness, bad.kinds))
        others = facts.job.paths.where(
            lambda kind: (
                kind.scope in scopes and _slowness(kind) <= slowest and (kind.transport == "NET" or not on_network)
            )
        )
        others = results.where(others.exclude(bad), lambda mark: not mark.is_open)
        # A path with another fault of the kind proves nothing, unless it is faster all the same.
        sound = results.where(others, lambda mark: faults.isdisjoint(mark.rules))
        self._good = others.where(lambda kind: _slowness(kind) < fastest) | sound

    def is_one_sided(self) -> bool:
        """Return whether paths show which of their ends lacks GPUDirect RDMA."""
        if self._finding.category != "gpudirect":
            return False
        return any(len({end.gdr for side in SIDES for end in kind.ends(side)}) > 1 for kind in self._bad.kinds)

    def paths(self) -> _Case:
        """Bad paths against good ones."""
        networks = {kind.net for kind in self._bad.kinds} & {kind.net for kind in self._good.kinds}
        traits = Traits(self._facts.job, _find_differences(self._facts), with_nics=bool(networks - {None}))
        good = partial(traits.select_paths, self._good)
        bad = traits.list_each(self._bad) if self._good else []
        group = Population(bad, good, len(self._good))
        return _Case(group, traits, _OF_PATHS, words.Scene("path", self._scope, self._hosts()))

    def ends(self) -> _Case:
        """Ends that lack GPUDirect RDMA against those that have it, including those on the same paths."""
        traits = Traits(self._facts.job, _find_differences(self._facts))
        paths = self._facts.inter_host_rdma_paths()
        bad = traits.list_ends(self._bad & paths, lambda end: not end.gdr)
        good = traits.list_ends(paths, lambda end: end.gdr)
        group = Population(bad, lambda wanted: (traits_of_end & wanted for traits_of_end in good), len(good))
        return _Case(group, traits, _OF_PATHS, words.Scene("end", self._scope, self._hosts()))

    def _hosts(self) -> int:
        """Return the number of compared hosts."""
        return len((self._bad.hosts() | self._good.hosts()) - {None})


def _slowness(kind: PathKind) -> int:
    """Return the order of connections by speed, as far as it is the same on all machines."""
    if kind.transport != "NET":
        return {"P2P": 0, "SHM": 1}.get(kind.transport, 2)
    return 4 if kind.net in _TCP else 2 if kind.gdr is True else 3


def _ranks(facts: Facts, finding: Finding) -> _Case:
    """Return the ranks of a finding against the others; its hosts if it has no ranks."""
    hosts = {host.name for host in facts.job.hosts}
    traits = Traits(facts.job, _find_differences(facts))
    if finding.ranks:
        nics = _nics(facts, finding)
        bad = [traits.list_rank(rank, nics.get(rank, ())) for rank in finding.ranks]
        good = [traits.list_rank(rank) for rank in sorted(set(facts.job.ranks_seen).difference(finding.ranks))]
    else:
        bad = [traits.list_hosts([host]) for host in finding.hosts]
        others = sorted(hosts.difference(finding.hosts))
        good = [traits.list_hosts([host]) for host in others] if len(others) > 1 else []  # one may be an excerpt's end
    group = Population(
        bad, lambda wanted: (traits_of_good & wanted for traits_of_good in good), len(good), 1, _OF_MESSAGES
    )
    scene = words.Scene("rank" if finding.ranks else "host", "any", len(hosts))
    return _Case(group, traits, _OF_RANKS, scene)


def _pairs(facts: Facts, broken: list[transfers.Transfer]) -> _Case:
    """Pairs of hosts with failed transfers against those without."""
    traits = Traits(facts.job, {})
    bad = [traits.list_hosts(transfer.pair, transfer.host, transfer.nic) for transfer in broken]
    good = [traits.list_hosts(pair) for pair in transfers.healthy_pairs(facts, broken)]
    group = Population(
        bad, lambda wanted: (traits_of_good & wanted for traits_of_good in good), len(good), hidden=_OF_MESSAGES
    )
    return _Case(group, traits, _OF_RANKS, words.Scene("pair", "any", 0))


def _notices(facts: Facts, finding: Finding) -> list[Notice]:
    """Return the statements with the wording of a finding's evidence, which has only the first of their lines."""
    lines = {(line.source, line.order) for line in finding.evidence}
    shown = [notice for notice in facts.job.notices if any((e.source, e.order) in lines for e in notice.evidence)]
    kinds = {(notice.production, value(notice, "status")) for notice in shown if notice.event}
    notices = facts.notices(*(production for production, _ in kinds))
    return [notice for notice in notices if (notice.production, value(notice, "status")) in kinds]


def _nics(facts: Facts, finding: Finding) -> dict[int, set[tuple[str, str]]]:
    """Return the NICs that the ranks of a finding name in its messages."""
    by_rank: dict[int, set[tuple[str, str]]] = {}
    for notice in _notices(facts, finding):
        nic = next((str(name) for field in _DEVICES if (name := value(notice, field))), None)
        if nic and len(notice.hosts) == 1:
            for rank in notice.ranks:
                by_rank.setdefault(rank, set()).add((notice.hosts[0], nic))
    return by_rank


@once
def _find_differences(facts: Facts) -> dict[int, list[tuple[str, str]]]:
    """Settings and versions that differ between ranks."""
    by_rank: dict[int, list[tuple[str, str]]] = {}
    for setting in _settings(facts):
        for rank in setting.ranks or ():
            by_rank.setdefault(rank, []).append(("setting", f"{setting.name}={setting.value}"))
    drivers = [(int(getattr(one.event, "cuda_version", 0)), one.ranks) for one in facts.with_event(events.CudaDriver)]
    for versions in (
        [(f"NCCL {getattr(one.event, 'version', '')}", one.ranks) for one in facts.with_event(events.NcclVersion)],
        [(f"CUDA driver {number // 1000}.{number % 1000 // 10}", ranks) for number, ranks in drivers],
    ):
        for version, ranks in versions if len({version for version, _ in versions}) > 1 else ():
            for rank in ranks:
                by_rank.setdefault(rank, []).append(("version", version))
    return {rank: list(dict.fromkeys(things)) for rank, things in by_rank.items()}


def _settings(facts: Facts) -> list[Setting]:
    """Settings that only some ranks have and that may select their connections."""
    values: dict[str, int] = {}
    for setting in facts.job.environment:
        values[setting.name] = values.get(setting.name, 0) + 1
    return [
        setting
        for setting in facts.job.environment
        if setting.ranks
        and (values[setting.name] > 1 or _STEERS.fullmatch(setting.name))
        and values[setting.name] <= _MOST_VALUES
        and not (setting.name.endswith("_DISABLE") and setting.value == "0")
    ]
