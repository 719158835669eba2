"""The culprits of findings: what the bad paths, connection ends or ranks have in common and the good ones lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cache, partial
from itertools import chain
from math import ceil, sqrt
from typing import Any, NamedTuple

from nccl_inspect.event import types as events
from nccl_inspect.grammar.layers import FOREIGN
from nccl_inspect.judging import transfers
from nccl_inspect.judging.engine import Results
from nccl_inspect.judging.facts import Facts, once
from nccl_inspect.judging.statements import NIC_FIELDS, layer_of, list_table, notices_shown, value
from nccl_inspect.model.finding import Culprit, Finding
from nccl_inspect.model.inventory import OVER_TCP
from nccl_inspect.model.job import Job, Notice, PathKind, Selection
from nccl_inspect.model.paths.path import SIDES, End
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.wording import is_or_are, ranks_word

_COLUMNS = {"send": ("src_host", "src", "src_gpu"), "receive": ("dst_host", "dst", "dst_gpu")}


class Trait(NamedTuple):
    """Something that a path, an end or a rank can have."""

    kind: str  # as in :class:`~nccl_inspect.model.finding.Culprit`
    name: str
    side: str | None = None  # ``send`` or ``receive`` if it counts at that end of paths only


Nics = frozenset[tuple[str | None, int | None]]  # names and numbers of the NICs of an end


class Traits:
    """The traits of a job's paths and ranks.

    Args:
        by_rank: settings and versions of each rank, as kind and name.
        with_nics: whether NICs and rails of paths count.
    """

    def __init__(self, job: Job, by_rank: Mapping[int, Sequence[tuple[str, str]]], *, with_nics: bool = False) -> None:
        self._job, self._by_rank, self._with_nics = job, by_rank, with_nics
        self.known: list[Trait] = []  # by number
        self.ranks: list[set[int]] = []  # the ranks with each trait
        self._numbers: dict[Trait, int] = {}
        self._ends: dict[tuple[object, ...], frozenset[int]] = {}
        self._host_of = {rank: host.name for host in job.hosts for rank in host.ranks}
        self._has_ranks = job.rank_space == "global" or len(job.communicators) < 2
        """Otherwise a number may mean ranks of several communicators."""

    def list_each(self, paths: Selection) -> list[Set[int]]:
        """Return the traits of each path, at any end and at a specific one."""
        names = chain.from_iterable(names for (names,) in paths.distinct("communicators"))
        numbers = {name: self._number(Trait("communicator", name), None) for name in names}
        comms = ({numbers[name] for name in names} for (names,) in paths.values("communicators"))
        ends = ([self._end(side, *end) for end in _ends(paths, side, self._with_nics)] for side in SIDES)
        return [traits.union(*both) for traits, *both in zip(comms, *ends, strict=True)]

    def select_paths(self, paths: Selection, wanted: Set[int]) -> Iterator[Set[int]]:
        """Yield those of some traits that each path has; paths without any are skipped."""
        traits = {self.known[number]: number for number in wanted}
        with_nics = self._with_nics and not {trait.kind for trait in traits}.isdisjoint(("nic", "rail"))
        comms = {trait.name: {number} for trait, number in traits.items() if trait.kind == "communicator"}

        @cache
        def select(side: str, *end: Any) -> frozenset[int]:
            return self._end(side, *end).intersection(wanted)

        ends = ([select(side, *end) for end in _ends(paths, side, with_nics)] for side in SIDES)
        for send, receive, (names,) in zip(*ends, paths.values("communicators"), strict=True):
            own = send | receive
            if comms:
                own = own.union(*(comms.get(name, ()) for name in names))
            if own:
                yield own

    def list_ends(self, paths: Selection, test: Callable[[End], object]) -> list[Set[int]]:
        """Return the traits of the ends of network connections that pass a test."""
        traits: list[Set[int]] = []
        for side in SIDES:
            for (host, rank, gpu, kind), number in Counter(paths.values(*_COLUMNS[side], "kind")).items():
                for end in filter(test, kind.ends(side)):
                    traits += [self._end(side, host, rank, gpu, frozenset([(end.nic, end.nic_index)]))] * number
        return traits

    def list_rank(self, rank: int, nics: Iterable[tuple[str, str]] = ()) -> Set[int]:
        """Return the traits of a rank."""
        things = [*_named_host(self._host_of.get(rank)), ("rank", str(rank)), *self._by_rank.get(rank, ())]
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
            hosts = _named_host(host)
            things = [*hosts, *self._gpu(hosts, rank, gpu)]
            things += [("nic", f"{name} {label}") for _, name in hosts for label in labels]
            both = [*self._by_rank.get(rank, ()), *(("rail", label) for label in labels)]
            traits = {self._number(Trait(*thing, of_side), rank) for thing in things for of_side in (None, side)}
            traits |= {self._number(Trait(*thing), rank) for thing in both}
            cached = self._ends[key] = frozenset(traits)
        return cached

    def _gpu(self, hosts: list[tuple[str, str]], rank: int, bracket: str | None) -> list[tuple[str, str]]:
        """Return the GPU of a rank from its init lines, else from connection lines; the rank if neither names it."""
        if not self._has_ranks:
            return []
        gpu = self._job.gpus.get(rank)
        number = gpu.nvml_dev if gpu else None
        name = (gpu and gpu.bus_id) or bracket if number is None else str(number)
        return [("gpu", f"{place} GPU {name}") for _, place in hosts if name] or [("rank", str(rank))]

    def _number(self, trait: Trait, rank: int | None) -> int:
        number = self._numbers.setdefault(trait, len(self.known))
        if number == len(self.known):
            self.known.append(trait)
            self.ranks.append(set())
        if rank is not None:
            self.ranks[number].add(rank)
        return number


def _ends(paths: Selection, side: str, with_nics: bool) -> Iterator[tuple[str | None, int, str | None, Nics]]:
    """Yield host, rank, GPU and NICs of one end of each path."""

    def nics(kind: PathKind) -> Nics:
        return frozenset([(end.nic, end.nic_index) for end in kind.ends(side)]) if with_nics else frozenset()

    return paths.values(*_COLUMNS[side], nics)


def _named_host(name: str | None) -> list[tuple[str, str]]:
    """Return the host, where it has a name: where prefixes were taken out of the log, a question mark stands for it."""
    return [("host", name)] if name is not None and not name.startswith("?") else []


MOST = 4  # culprits named together at most; a fault with more of them is everywhere
_ALL = 0.95  # the part of the bad ones that must be explained: a cut or torn log may hide the traits of a few
_PURE, _FEW = 0.9, 4
"""The part of its bearers that is bad of a trait that needs no other proof; else chance must be excluded."""
_THINGS = ("host", "gpu", "nic", "rail", "rank")
"""Kinds whose culprits cover at most half: more than half is simply the job."""


class Population(Frozen):
    """The bad and the good ones to compare: the traits of each, by number."""

    bad: Sequence[Set[int]]
    good: Callable[[Set[int]], Iterable[Set[int]]]
    """Those of some traits that the good ones have; good ones without any may be left out."""
    goods: int  # how many good ones there are
    fewest: int = 2  # how many bad ones a trait must explain
    hidden: Set[str] = frozenset()  # kinds known for the bad ones only


class TraitCount(Frozen):
    """Holds how many bad and good ones have a trait."""

    trait: int
    bad: int
    good: int


class Explanation(Frozen):
    """Holds what explains the bad ones; nothing if it is empty."""

    culprits: Sequence[TraitCount] = ()  # best first
    beside: Sequence[TraitCount] = ()  # traits that exactly the same ones have: the setting or version of a bad host
    explained: int = 0  # how many bad ones it explains


def explain(group: Population, traits: Sequence[Trait], order: Sequence[str]) -> Explanation:
    """Return the best explanation.

    Args:
        group: what is bad and what is good.
        order: of the kinds of traits; among those that explain the same, the first is named.
    """
    if not group.bad or not group.goods:
        return Explanation()
    least = max(group.fewest, ceil(0.05 * len(group.bad)))  # of several culprits, each must explain that many
    bad = Counter(trait for having in group.bad for trait in having)
    wanted = {trait for trait, number in bad.items() if number >= least}
    good = Counter(trait for having in group.good(wanted) for trait in having)
    number, whole, telling = len(group.bad), len(group.bad) + group.goods, []
    for count in (TraitCount(trait, bad[trait], good[trait]) for trait in sorted(wanted)):
        # More of its bearers are bad than by chance, and some good ones lack it.
        inside, expected = count.bad + count.good, (count.bad + count.good) * number / whole
        is_usual = count.good == group.goods or count.bad / inside <= (number - count.bad) / (whole - inside)
        is_many = count.bad >= _FEW and count.bad >= expected + 3 * sqrt(expected)
        if not is_usual and (count.bad >= _PURE * inside or is_many):
            telling.append(count)
    pool = _Pool(telling, group.bad, traits, order)
    # One trait that explains nearly all, or several that together explain all.
    tried = (pool.find_sufficient(ceil(_ALL * len(group.bad))), pool.cover(set(range(len(group.bad))), least, MOST))
    best = max(tried, key=_worth)
    kinds = Counter(traits[count.trait].kind for count in best)
    things = Counter(kind for kind, _ in {(trait.kind, trait.name) for trait in traits})
    counting = [kind for kind in kinds if kind in _THINGS and kind not in group.hidden]
    if _worth(best) < 0.25 or any(2 * kinds[kind] > things[kind] for kind in counting):  # most are simply the job
        return Explanation()
    explained = set[int]().union(*(pool.having[count.trait] for count in best))
    named = sorted(best, key=lambda count: (-count.bad, count.good, *pool.sort_key(count.trait)))
    return Explanation(named, pool.beside(best, explained), len(explained))


def _worth(culprits: Sequence[TraitCount]) -> float:
    """Return the score of culprits: the bad part of their bearers; three that fit beat one that half fits."""
    if not culprits:
        return 0.0
    bad, good = sum(count.bad for count in culprits), sum(count.good for count in culprits)
    return float(bad / (bad + good) * 0.8 ** (len(culprits) - 1))


class _Pool:
    """The traits that may be culprits."""

    def __init__(
        self, telling: Iterable[TraitCount], bad: Sequence[Set[int]], traits: Sequence[Trait], order: Sequence[str]
    ) -> None:
        self._telling = {count.trait: count for count in telling}
        self.having = group_sets((trait, at) for at, own in enumerate(bad) for trait in own if trait in self._telling)
        """The bad ones with each trait."""
        self._traits, self._unexplained = traits, (1 - _ALL) * len(bad)
        self._order = {kind: place for place, kind in enumerate(order)}

    def find_sufficient(self, least: int) -> list[TraitCount]:
        """Return the one trait that best explains that many."""
        able = [count for count in self._telling.values() if count.bad >= least]
        worths = {count.trait: count.bad / (count.bad + count.good) for count in able}
        best = self._pick_first(worths, self.having)
        return [] if best is None else [self._telling[best]]

    def cover(self, left: set[int], least: int, most: int) -> list[TraitCount]:
        """Return several traits that together explain all, each the best for the rest; empty if there are too many.

        If several are equally good, each is tried first: if the results differ, only names would decide.
        """
        new = {trait: having & left for trait, having in self.having.items()}
        scores = {
            trait: len(some) * (len(some) / (len(some) + self._telling[trait].good)) ** 2
            for trait, some in new.items()
            if len(some) >= least
        }
        best = self._pick_first(scores, new)
        if best is None:
            return []
        tried = []
        is_whole = self._traits[best].side is None
        equals = [other for other in self._alike(best, scores) if (self._traits[other].side is None) is is_whole]
        for trait in sorted((best, *equals), key=self.sort_key)[: most + 1]:
            rest = left - new[trait]
            done = len(rest) <= self._unexplained
            others = [] if done or most == 1 else self.cover(rest, least, most - 1)
            if not done and not others:
                return []
            tried.append([self._telling[trait], *others])
        return tried[0] if all(set(combination) == set(tried[0]) for combination in tried) else []

    def beside(self, culprits: Sequence[TraitCount], explained: set[int]) -> list[TraitCount]:
        """Return other traits with exactly the bearers of the only culprit."""
        if len(culprits) != 1:
            return []
        (named,) = culprits
        own = self._traits[named.trait]
        # With rails, each GPU has a NIC of its own.
        kinds = ("gpu", "rank", "setting", "version") if own.kind == "nic" else ("setting", "version")
        alike = (
            count
            for trait, count in self._telling.items()
            if trait != named.trait and count.good == named.good and self.having[trait] == explained
        )
        fitting = [
            one for one in alike if self._traits[one.trait].kind in kinds and self._traits[one.trait].side == own.side
        ]
        return sorted(fitting, key=lambda count: self.sort_key(count.trait))

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

    def sort_key(self, trait: int) -> tuple[int, bool, str]:
        """Return the sort key if all else is equal."""
        kind, name, side = self._traits[trait]
        return self._order[kind], side is not None, name


_OF_MESSAGES = frozenset(("nic", "rail"))  # kinds that only the complaining ranks name
_STEERS = compile_later(
    r"NCCL_(?:\w+_(?:DISABLE|ENABLE|LEVEL)|(?:NET|TUNER)(?:_PLUGIN)?|ALGO|PROTO|CROSS_NIC|IB_HCA|SOCKET_IFNAME|TOPO_FILE)"
)
"""Variables that select connections; others that only some ranks print may be effects of their connections."""


def locate(facts: Facts, results: Results, findings: Iterable[Finding], names_fault: Callable[[Finding], bool]) -> None:
    """Add the culprits to findings, with a sentence and a first step.

    Args:
        results: of all rules: which paths are bad.
        names_fault: says whether the fault is in the ranks and hosts that a finding names.
    """
    # Something may be wrong: a certain info needs no inspection.
    findings = [one for one in findings if one.severity != "info" or one.confidence == "possible"]
    against = {finding.rule: finding.category for finding in findings}
    for finding in findings:
        if finding.paths:
            _add_culprits(facts, finding, _compare_paths(facts, results, finding, finding.paths, against))
        elif broken := transfers.failed_transfers(facts, _notices(facts, finding)):
            traits = Traits(facts.job, {})
            bad = [traits.list_hosts((one.host, one.peer), one.host, one.nic) for one in broken]
            good = [traits.list_hosts(pair) for pair in transfers.healthy_pairs(facts, broken)]
            group = _make_population(bad, good, hidden=_OF_MESSAGES)
            _add_culprits(facts, finding, (group, traits, Scene("pair", "any", 0)))
        elif names_fault(finding):
            # Lines of ranks that waited for others or lost them do not count, unless they name a NIC of their own.
            is_of_others = any(layer_of(notice) in FOREIGN for notice in _notices(facts, finding))
            nics = _nics(facts, finding)
            if is_of_others and not nics:
                continue
            # The ranks of a finding and the others; its hosts if it has no ranks.
            traits, hosts = Traits(facts.job, _find_differences(facts)), {host.name for host in facts.job.hosts}
            if finding.ranks:
                bad = [traits.list_rank(rank, nics.get(rank, ())) for rank in finding.ranks]
                good = [traits.list_rank(rank) for rank in sorted(set(facts.job.ranks_seen).difference(finding.ranks))]
            else:
                bad, others = [traits.list_hosts([host]) for host in finding.hosts], hosts.difference(finding.hosts)
                # One may be an excerpt's end.
                good = [traits.list_hosts([host]) for host in sorted(others)] if len(others) > 1 else []
            scene = Scene("rank" if finding.ranks else "host", "any", len(hosts))
            _add_culprits(facts, finding, (_make_population(bad, good, 1, _OF_MESSAGES), traits, scene))


_Case = tuple[Population, Traits, "Scene"]  # the comparison for a finding


def _add_culprits(facts: Facts, finding: Finding, case: _Case) -> None:
    group, traits, scene = case
    # The preference among traits that explain the same; a rank reports its own fault, and names its NIC.
    first = ("host", "nic", "gpu", "rank") if scene.noun in ("path", "end") else ("nic", "host", "rank", "gpu")
    order = (*first, "rail", "communicator", "setting", "version")
    explanation, good = explain(group, traits.known, order), group.goods
    ranks_of = {host.name: host.ranks for host in facts.job.hosts}

    def culprit(count: TraitCount) -> Culprit:
        kind, name, side = traits.known[count.trait]
        ranks = ranks_of[name] if kind == "host" and name in ranks_of else sorted(traits.ranks[count.trait])
        return Culprit(kind, name, count.bad, count.bad + count.good, good - count.good, side, ranks)

    named, beside = ([culprit(count) for count in counts] for counts in (explanation.culprits, explanation.beside))
    # A setting that the finding is about explains its paths, but neither says more, nor is it lacking elsewhere.
    lines = "\n".join(line.text for line in finding.evidence)
    is_stated = any(one.kind == "setting" and one.name.partition("=")[0] in lines for one in named)
    if not named or (is_stated and not facts.job.paths):
        return
    finding.culprits = [*named, *beside]
    scene = scene.with_fields(bad=len(group.bad), good=good, explained=explanation.explained)
    finding.where = tell(named, beside, scene, facts.job)
    step = find_step(named, beside, scene, facts.job)
    if step and finding.severity != "info" and not is_stated:
        finding.fix = [step, *finding.fix]


def _compare_paths(facts: Facts, results: Results, finding: Finding, bad: Selection, against: dict[str, str]) -> _Case:
    """Compare the paths of a finding with the good ones that it could have been about.

    If paths show which of their ends lack GPUDirect RDMA, these ends are compared with all that have it.
    """
    scopes = {kind.scope for kind in bad.kinds}
    # Multi-node NVLink does not count as a working network, but findings about local paths compare with it.
    on_network = all(kind.transport == "NET" for kind in bad.kinds) and finding.category != "intra-node path"
    fastest, slowest = min(map(_slowness, bad.kinds)), max(map(_slowness, bad.kinds))
    others = facts.job.paths.where(
        lambda kind: kind.scope in scopes and _slowness(kind) <= slowest and (kind.transport == "NET" or not on_network)
    )
    others = results.where(others.exclude(bad), lambda mark: not mark.is_open)
    # A path with another fault of the kind proves nothing, unless it is faster all the same.
    faults = {rule for rule, category in against.items() if category == finding.category}
    sound = results.where(others, lambda mark: faults.isdisjoint(mark.rules))
    good = others.where(lambda kind: _slowness(kind) < fastest) | sound
    scope = scopes.pop() if len(scopes) == 1 and scopes <= {"intra", "inter"} else "any"
    hosts = len((bad.hosts() | good.hosts()) - {None})
    if finding.category == "gpudirect" and any(
        len({end.gdr for side in SIDES for end in kind.ends(side)}) > 1 for kind in bad.kinds
    ):
        traits = Traits(facts.job, _find_differences(facts))
        paths = facts.inter_host_rdma_paths()
        lacking = traits.list_ends(bad & paths, lambda end: not end.gdr)
        group = _make_population(lacking, traits.list_ends(paths, lambda end: end.gdr))
        return group, traits, Scene("end", scope, hosts)
    shared = {kind.net for kind in bad.kinds} & {kind.net for kind in good.kinds}
    traits = Traits(facts.job, _find_differences(facts), with_nics=bool(shared - {None}))
    group = Population(traits.list_each(bad) if good else [], partial(traits.select_paths, good), len(good))
    return group, traits, Scene("path", scope, hosts)


def _make_population(
    bad: Sequence[Set[int]], good: Sequence[Set[int]], fewest: int = 2, hidden: Set[str] = frozenset()
) -> Population:
    return Population(bad, lambda wanted: (traits & wanted for traits in good), len(good), fewest, hidden)


def _slowness(kind: PathKind) -> int:
    """Return the order of connections by speed, as far as it is the same on all machines."""
    if kind.transport != "NET":
        return {"P2P": 0, "SHM": 1}.get(kind.transport, 2)
    return 4 if kind.net in OVER_TCP else 2 if kind.gdr is True else 3


def _notices(facts: Facts, finding: Finding) -> list[Notice]:
    """Return the statements with the wording of a finding's evidence, which has only the first of their lines."""
    shown = notices_shown(facts.job.notices, finding)
    kinds = {(notice.production, value(notice, "status")) for notice in shown if notice.event}
    notices = facts.notices(*(production for production, _ in kinds))
    return [notice for notice in notices if (notice.production, value(notice, "status")) in kinds]


def _nics(facts: Facts, finding: Finding) -> dict[int, set[tuple[str, str]]]:
    """Return the NICs that the ranks of a finding name in its messages."""
    by_rank: dict[int, set[tuple[str, str]]] = {}
    for notice in _notices(facts, finding):
        nic = next((str(name) for field in NIC_FIELDS if (name := value(notice, field))), None)
        if nic and len(notice.hosts) == 1:
            for rank in notice.ranks:
                by_rank.setdefault(rank, set()).add((notice.hosts[0], nic))
    return by_rank


@once
def _find_differences(facts: Facts) -> dict[int, list[tuple[str, str]]]:
    """Return settings that may select connections, and versions, as far as they differ between ranks."""
    values = Counter(setting.name for setting in facts.job.environment)
    found = [
        (rank, ("setting", f"{setting.name}={setting.value}"))
        for setting in facts.job.environment
        if (values[setting.name] > 1 or _STEERS.fullmatch(setting.name))
        and values[setting.name] <= 3  # one with more differs by design, such as one that names each host's interface
        and not (setting.name.endswith("_DISABLE") and setting.value == "0")
        and setting.name != "NCCL_HOSTID"  # another name of the host
        for rank in setting.ranks or ()
    ]
    drivers = [(int(getattr(one.event, "cuda_version", 0)), one.ranks) for one in facts.with_event(events.CudaDriver)]
    for versions in (
        [(f"NCCL {getattr(one.event, 'version', '')}", one.ranks) for one in facts.with_event(events.NcclVersion)],
        [(f"CUDA driver {number // 1000}.{number % 1000 // 10}", ranks) for number, ranks in drivers],
    ):
        if len({version for version, _ in versions}) > 1:
            found += [(rank, ("version", version)) for version, ranks in versions for rank in ranks]
    return group_values(dict.fromkeys(found))


_NOUNS = {"end": "ends without GPUDirect RDMA", "pair": "pairs of hosts with failed transfers"}
_MOST_STEPS = 2  # with more culprits, there is no single thing to look at first
_SIDES = {"send": "sending ", "receive": "receiving ", None: ""}


class Scene(Frozen):
    """The comparison that led to the culprits."""

    noun: str  # ``path``, ``end``, ``pair`` (of hosts), ``rank`` or ``host``
    scope: str  # of paths: ``intra``, ``inter`` or ``any``
    hosts: int  # number of hosts
    bad: int = 0
    good: int = 0
    explained: int = 0  # number of bad ones that the culprits explain


def name_of(culprit: Culprit) -> str:
    """Return a culprit by its kind and name: ``host node-a``, ``GPU 5 of node-a``, ``NCCL_ALGO=Tree``."""
    side = _SIDES[culprit.side]
    if culprit.kind in ("host", "rank", "rail", "communicator"):
        return f"{side}{culprit.kind} {culprit.name}"
    return side + _device(culprit)


def _device(culprit: Culprit) -> str:
    """Return a GPU or a NIC with its host; the name of all else."""
    host, mark, thing = culprit.name.partition(" ")
    return f"{thing} of {host}" if mark and culprit.kind in ("gpu", "nic") else culprit.name


def subject(culprits: Sequence[Culprit]) -> str:
    """Culprits in a heading."""
    if all(culprit.kind == "rank" and not culprit.side for culprit in culprits):
        return ranks_word(int(culprit.name) for culprit in culprits)
    more = len(culprits) - _MOST_STEPS
    return ", ".join(map(name_of, culprits[:_MOST_STEPS])) + (f" and {more} more" if more > 0 else "")


def tell(named: Sequence[Culprit], beside: Sequence[Culprit], scene: Scene, job: Job) -> str:
    """Return all culprits in a sentence; those ``beside`` coincide with the only one that explains the fault."""
    along = _distinguish(beside)
    only_there = f"; only there: {_either(along, 'and')}" if along else ""
    if scene.noun in ("rank", "host") and all(culprit.kind == scene.noun for culprit in named):
        who = _either([_whose(culprit, job) for culprit in named], "and")
        rest = f"not the other {scene.noun}" if scene.good == 1 else f"none of the other {scene.good:,}"
        return f"only {scene.noun}{'s' * (len(named) > 1)} {who}, {rest}{only_there}"
    what = _NOUNS.get(scene.noun, f"{scene.noun}s")
    subjects = (
        f"all {scene.bad:,} {what}" if scene.explained == scene.bad else f"{scene.explained:,} of {scene.bad:,} {what}"
    )
    verbs = [_verb(culprit, scene) for culprit in named]
    first = verbs[0]
    if scene.bad == 1:
        noun, _, rest = what.partition(" ")
        subjects = f"the only {noun[:-1]} {rest or 'with the fault'}"
        words = (verb.partition(" ") for verb in verbs)
        verbs = [
            {"are": "is", "have": "has", "touch": "touches"}.get(verb, f"{verb}s") + b + of for verb, b, of in words
        ]
    objects = [_object(culprit, beside, scene, job) for culprit in named]
    if len(named) > 1:
        objects = [f"{what} ({culprit.bad:,})" for what, culprit in zip(objects, named, strict=True)]
    # The verb is not repeated if all share it.
    both = zip(verbs, objects, strict=True)
    parts = [what if at and verb == verbs[0] else f"{verb} {what}" for at, (verb, what) in enumerate(both)]
    good = sum(culprit.of - culprit.bad for culprit in named)
    inside = f", as {_auxiliary(first, good)} {good:,} good {'one' if good == 1 else 'ones'}" if good else ""
    return f"{subjects} {_either(parts, 'or')}{inside}; {_outside(named, scene, first, scene.good - good)}{only_there}"


def _verb(culprit: Culprit, scene: Scene) -> str:
    """Return the verb between the bad ones and a culprit, in the plural."""
    noun, verbs = "rank" if scene.noun == "host" else scene.noun, list_table("verb")
    own = f"{noun} {culprit.kind}"
    keys = (f"{own} {scene.scope}", f"{own} {culprit.side}", own, noun)
    return next(verbs[key] for key in keys if key in verbs)


def _object(culprit: Culprit, beside: Sequence[Culprit], scene: Scene, job: Job) -> str:
    kind, ranks = culprit.kind, f" ({ranks_word(culprit.ranks)})" if culprit.ranks else ""
    if kind == "gpu":
        return _device(culprit) + ranks
    if kind == "nic":
        gpu = next((other.name.partition(" ")[2] for other in beside if other.kind == "gpu"), "")
        return _device(culprit) + (f", the NIC of {gpu} ({ranks_word(culprit.ranks)})" if gpu else "")
    if kind in ("rank", "rail", "communicator"):
        return f"{kind} {_whose(culprit, job)}"
    if kind in ("setting", "version"):
        who = ranks if ranks.count(",") < 8 else ""
        return f"{culprit.name}{who}" if scene.noun == "rank" else f"ranks with {culprit.name}{who}"
    return culprit.name


def _whose(culprit: Culprit, job: Job) -> str:
    """Return a rank with its place, and the name of all else."""
    if culprit.kind != "rank":
        return culprit.name
    rank = int(culprit.name)
    host = next((host.name for host in job.hosts if rank in host.ranks), None)
    gpu = job.gpus.get(rank)
    place = f"GPU {gpu.nvml_dev} of {host}" if gpu and gpu.nvml_dev is not None else f"on {host}"
    return f"{culprit.name} ({place})" if host and not host.startswith("?") else culprit.name


def _outside(named: Sequence[Culprit], scene: Scene, verb: str, elsewhere: int) -> str:
    """Return the state of those without the trait; paths that do not touch a host belong to other hosts."""
    where, is_other = "", False
    joint = {"intra": "within", "inter": "between"}.get(scene.scope)
    if scene.noun == "path" and joint:
        others = scene.hosts - len(named)
        is_of_hosts = all(culprit.kind == "host" and not culprit.side for culprit in named)
        is_other = is_of_hosts and others >= 1 and (others > 1 or scene.scope != "inter")  # else the log names no other
        where = f" {joint} the other {f'{others} hosts' if others > 1 else 'host'}" if is_other else f" {joint} hosts"
    if (rest := scene.bad - scene.explained) > 0:
        return f"of the other {elsewhere + rest:,}{where} only {rest:,} {is_or_are(rest)} bad"
    if elsewhere == 1 and not is_other:
        return f"the other one{where} {_auxiliary(verb, 1)} not"
    return f"none of the {'' if is_other else 'other '}{elsewhere:,}{where} {_auxiliary(verb, 1)}"


def _auxiliary(verb: str, number: int) -> str:
    if verb.startswith("are "):
        return is_or_are(number)
    return "does" if number == 1 else "do"


def _distinguish(beside: Sequence[Culprit]) -> list[str]:
    """Return the settings and versions that coincide with the culprit."""
    return [other.name for other in beside if other.kind in ("setting", "version")]


def _either(parts: Sequence[str], word: str) -> str:
    *first, last = parts
    return f"{', '.join(first)} {word} {last}" if first else last


def find_step(named: Sequence[Culprit], beside: Sequence[Culprit], scene: Scene, job: Job) -> str:
    """Return what to look at first; empty if there are too many culprits, or none that can be inspected."""
    kinds = {culprit.kind for culprit in named}
    if len(named) > _MOST_STEPS or len(kinds) > 1 or scene.noun == "host":
        return ""
    (kind,) = kinds
    host, _, device = named[0].name.partition(" ")
    number, along, is_one, key = device.removeprefix("GPU "), _distinguish(beside), len(named) == 1, kind
    if kind == "host" and along:
        key = "host with"
    elif (kind, scene.noun) == ("host", "rank"):
        return ""  # ranks that report a fault of their host name it: then the steps of the rule come first
    elif kind == "gpu" and "rccl" in job.dialects:
        key = "gpu rccl"
    elif kind == "gpu" and is_one and number.isdigit() and int(number) <= 16:  # else it is a bus id, as until 2.13
        key = "gpu one"
    elif kind == "nic" and is_one and not device.startswith("NIC "):
        key = "nic mlx" if device.startswith("mlx") else "nic one"
    elif kind == "rail" and scene.noun not in ("path", "end"):
        key = "rail cable"  # of failed transfers: if only GPUDirect RDMA is missing, cables and switches are fine
    things, alone = _either([_device(culprit) for culprit in named], "and"), _either(along or [""], "and")
    step = list_table("look").get(key, "")
    return step.format(things=things, host=host, device=device, number=number, along=alone)
