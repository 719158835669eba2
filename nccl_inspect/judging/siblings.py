"""What should be alike, and which one differs: variables on which ranks must agree, and siblings of a job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from functools import partial, reduce
from itertools import chain
from operator import lt, or_
from typing import Any, NamedTuple

from nccl_inspect.event import types as events
from nccl_inspect.event.base import Process, is_named
from nccl_inspect.judging import cuda
from nccl_inspect.judging.ends import process_ends
from nccl_inspect.judging.facts import HOSTS, RANKS, Facts, global_ranks, nics_used
from nccl_inspect.judging.statements import list_table
from nccl_inspect.judging.transfers import REFUSED, failed_connections, retried_connections
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import Begin
from nccl_inspect.model.job import CommunicatorInfo, Notice, PathKind, Selection, Setting
from nccl_inspect.model.paths.path import SIDES
from nccl_inspect.model.statements.unrecognised import template
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Frozen, Record, Slotted
from nccl_inspect.util.wording import list_words, ranks_word


class Agreement(Frozen):
    """A variable on which ranks must agree."""

    name: str
    effect: str = ""
    """What ranks that differ then use differently: ``transport``, ``network`` or ``address``; empty if they only wait
    for each other or are slow, and no error names it."""
    on_host: bool = False  # may differ between hosts, but not between the ranks of a host
    is_choice: bool = False  # a launcher may give each rank its own device on purpose: harmless if the ranks connect
    echoed: bool = False  # every rank that has it prints it before its initialization completes: no line means not set
    hidden_by: str = ""  # a variable that makes NCCL ignore this one


def _read_agreement(name: str, words: str) -> Agreement:
    fields: dict[str, Any] = {key: given or True for key, _, given in (word.partition("=") for word in words.split())}
    return Agreement(name, **fields)


AGREEMENTS = tuple(_read_agreement(*entry) for entry in list_table("agreement").items())
"""Without ``on_host``, different values on any two ranks break or slow down a communicator."""


def errors_of(facts: Facts, effect: str, ranks: Collection[int]) -> list[Notice]:
    """Return the errors in the log that such a disagreement leads to; none if other CUDA calls failed as well.

    Where there are none, a process may have crashed on what it got: its connection to or from these ranks, which differ
    from the others, uses another transport in each direction.
    """
    if effect != "transport":
        return [*failed_connections(facts, *REFUSED), *retried_connections(facts, *REFUSED)] if effect else []
    # CUDA calls in these files refuse what a rank with another transport sent.
    files = ("transport/p2p.cc", "transport/shm.cc", "proxy.cc", "misc/shmutils.cc")
    failures = [(one.code in cuda.NOT_SHARED and str(one.file).endswith(files), one) for one in cuda.failures(facts)]
    errors = [*facts.with_role("handle-refused"), *(failure.notice for _, failure in failures)]
    if errors and all(is_ours for is_ours, _ in failures):
        return errors
    over_p2p, over_shm = (set(facts.paths(transport=way).distinct("src", "dst")) for way in ("P2P", "SHM"))
    ends = {rank for pair in over_p2p if pair[::-1] in over_shm and not set(ranks).isdisjoint(pair) for rank in pair}
    return [end.notice for end in process_ends(facts) if end.is_crash and end.ranks and ends.issuperset(end.ranks)]


def ranks_without(facts: Facts, agreement: Agreement, setting: Setting) -> set[int]:
    """Return the ranks without a setting that every rank with it prints, on the same hosts if that matters."""
    # Their log must be complete up to the end of an initialization: if its beginning was cut off, each rank lacks
    # different lines. A process prints some variables only for its first communicator, that of all ranks.
    comms = facts.job.communicators
    completed = {rank for comm in comms for rank in global_ranks(comm, comm.completed)}
    # Until 2.21 a rank connects before its initialization is complete. The other end states a connection as well.
    own = facts.job.paths.where(lambda kind: not kind.links or any(link.send for link in kind.links))
    completed |= {rank for (rank,) in own.distinct("src")}
    announced = {rank for comm in comms if comm.id == "world" for rank in global_ranks(comm, comm.announced)}
    others = (completed & (ranks_with_interface(facts) or announced)) - set(setting.ranks or ())
    others -= facts.ranks_with(facts.settings(agreement.hidden_by))
    if not agreement.on_host:
        return others
    return {rank for host in facts.job.hosts if host.name in setting.hosts for rank in host.ranks} & others


def ranks_with_interface(facts: Facts) -> set[int]:
    """Return the ranks that report the interface they chose, which is among the first lines."""
    return {rank for notice in facts.with_event(events.BootstrapInterface) for rank in notice.ranks}


def with_own_ranks(facts: Facts, settings: list[Setting]) -> list[Setting]:
    """Return the settings, without ranks that other processes have as well: those of communicators without a world."""
    if facts.job.rank_space == "global":
        return settings
    having = group_sets((rank, last.process) for last in facts.job.last_lines for rank in last.ranks)
    own = [all(having.get(rank, set()) <= set(one.processes) for rank in one.ranks or ()) for one in settings]
    return [one if is_own else one.with_fields(ranks=[]) for one, is_own in zip(settings, own, strict=True)]


def owners(setting: Setting) -> str:
    """Return who has a setting, in words: its ranks, or its processes where these are not known."""
    if setting.ranks is None:
        return "all ranks"
    if setting.ranks:
        return ranks_word(setting.ranks)
    named = [process for process in setting.processes if is_named(process.host)]
    if len(named) == len(setting.processes) == 1:
        return f"pid {named[0].pid} of host {named[0].host}"
    return f"host {', '.join(setting.hosts)}"


ABSENT = "none"  # the value of a sibling that is known to state none
_MAJORITY = 4  # siblings of which one that differs is likely the odd one; of fewer the worse one possibly is


class Attribute(Frozen):
    """Something that siblings must agree on."""

    label: str
    check: str  # the step that finds out why they do not
    told_by: tuple[str, ...]  # categories of findings that tell the same, if they name the same ranks or hosts
    worse: Callable[[Any, Any], bool] | None = None
    """Whether the first value is worse than the second: then only a worse one is odd."""
    least: int = _MAJORITY  # siblings that must be there
    is_narrow: bool = False  # whether an odd rank explains that its host is odd
    is_equipment: bool = False  # whether it is of the machine
    is_progress: bool = False  # how far something came: a log that was cut may be all that differs


class Sibling(Slotted):
    """One of a group, with what it stands for."""

    kind: str  # ``host``, ``rank``, ``pair`` (of ranks), ``process`` or ``communicator``
    name: str
    hosts: frozenset[str]
    ranks: frozenset[int]
    lines: Callable[[], Iterable[Evidence]]  # finds the lines that show its value
    paths: Callable[[], Selection] | None = None  # finds its slow paths


class Odd(Record):
    """Siblings that differ from the others of their group."""

    attribute: Attribute
    label: str
    siblings: list[Sibling]  # the odd ones, as they are called
    found: list[Sibling]
    """The same as they were found, and after them those that are only connected to them: all have slow paths."""
    group: str  # what all of them are called
    values: Mapping[Sibling, Hashable]  # of all of them
    usual: Hashable
    like: Sibling  # one of the others
    others: int
    is_machine: bool = False  # whether the odd one may be a machine of another kind, as may be meant

    @property
    def is_likely(self) -> bool:
        """Return whether there are enough siblings of one kind to show which one is odd."""
        return len(self.values) >= _MAJORITY and not self.is_machine and not self.attribute.is_progress

    @property
    def hosts(self) -> frozenset[str]:
        """Return the hosts that are odd, or have what is."""
        return frozenset().union(*(sibling.hosts for sibling in self.siblings))

    @property
    def ranks(self) -> frozenset[int]:
        """Return the ranks, likewise."""
        return frozenset().union(*(sibling.ranks for sibling in self.siblings))

    def lines(self) -> list[Evidence]:
        """Return a line of the odd one, and one of its siblings."""
        return [line for one in (self.found[0], self.like) for line in list(one.lines())[:1]]


def find_odd(attribute: Attribute, values: Mapping[Sibling, Hashable], group: str, label: str = "") -> Odd | None:
    """Return what is odd in a group of siblings, if anything is; that a rank states nothing may be a lost line."""
    counts = Counter(values.values())
    worse = attribute.worse
    if len(counts) < 2 or len(values) < attribute.least:
        return None
    usual = counts.most_common(1)[0][0]
    if worse and len(values) == 2:
        usual = next((value for value in counts if not any(worse(value, other) for other in counts)), usual)
    odd = [sibling for sibling, value in values.items() if value != usual]
    # One sibling of eight may be odd, and always one.
    is_odd = len(odd) <= max(1, len(values) // 8) and all(not worse or worse(values[one], usual) for one in odd)
    if not is_odd or (values[odd[0]] == ABSENT and odd[0].kind != "host" and not odd[0].paths):
        return None
    like = next(sibling for sibling, value in values.items() if value == usual)
    return Odd(attribute, label or attribute.label, odd, odd, group, values, usual, like, len(values) - len(odd))


def _keep_common_host(found: Iterable[Odd]) -> list[Odd]:
    """Return what is odd on the only host that all slow paths touch: the others are only connected to it."""
    kept = []
    for entries in group_values((one.label, one) for one in found).values():
        paths = [sibling.paths and sibling.paths() for one in entries for sibling in one.found]
        ends = [set(pair) for some in paths for pair in (some.distinct("src_host", "dst_host") if some else [()])]
        common = set.intersection(*ends)
        for one in entries:
            there = [sibling for sibling in one.found if sibling.hosts == common]
            if there:  # the slow paths of the others are the same, or lead there, too
                kept.append(one.with_fields(siblings=there, found=sorted(one.found, key=lambda o: o not in there)))
            elif len(common) != 1:
                kept.append(one)
    return kept


def join(found: Iterable[Odd], ranks_of: Mapping[str, frozenset[int]]) -> list[list[Odd]]:
    """Return what is odd by who is odd, the narrowest statement first."""
    alike = group_values(((one.label, one.hosts, one.is_likely), one) for one in _keep_common_host(found)).values()
    by_hosts = group_values((one.hosts, one) for one in (_merge(entries, ranks_of) for entries in alike)).values()
    results = []
    for entries in by_hosts:
        ordered = sorted(entries, key=lambda one: (one.is_likely, -len(one.ranks)))
        by_label = {one.label: one for one in ordered}
        joined = [one for one in reversed(ordered) if by_label[one.label] is one]
        # A host that differs in more of its equipment may be a machine of another kind.
        if sum(one.attribute.is_equipment for one in joined) > 1:
            joined = [one.with_fields(is_machine=True) for one in joined]
        results.append(joined)
    return results


def _merge(entries: list[Odd], ranks_of: Mapping[str, frozenset[int]]) -> Odd:
    """Join entries of one attribute: the rank that all have in common, or the host of which all ranks are odd."""
    narrow = [one for one in entries if one.siblings[0].kind != "host"]
    entries = narrow if narrow and entries[0].attribute.is_narrow else entries
    first, ranks = entries[0], [one.ranks for one in entries]
    common, every = frozenset.intersection(*ranks), frozenset.union(*ranks)
    found = [sibling for one in entries for sibling in one.found]
    odd = {(sibling.kind, sibling.name): sibling for one in entries for sibling in one.siblings}
    siblings, group = list(odd.values()), first.group
    others = first.others
    if len(siblings) > 1 and len(common) == 1:
        siblings = [first.found[0].with_fields(kind="rank", name=str(min(common)), ranks=common)]
        group = group.replace("pairs of", "ranks with")
    elif len(siblings) > 1 and all(ranks_of.get(host, {-1}) <= every for host in first.hosts):
        like, group = first.found[0], "hosts"
        others = next((one.others for one in entries if one.siblings[0].kind == "host"), others)
        siblings = [
            like.with_fields(kind="host", name=host, hosts=frozenset((host,)), ranks=ranks_of[host])
            for host in sorted(first.hosts)
        ]
    return first.with_fields(siblings=siblings, found=found, group=group, others=others)


def tell(entries: list[Odd]) -> str:
    """Return who differs from whom, and in what."""
    first = entries[0]
    by_kind = group_values((sibling.kind, sibling) for sibling in first.siblings)
    who = list_words(
        ranks_word(rank for one in some for rank in one.ranks)
        if kind == "rank"
        else f"{kind if len(some) == 1 else f'{kind}s'} {list_words(one.name for one in some)}"
        for kind, some in by_kind.items()
    )
    others = f"the {first.others} other" if first.others > 1 else "the other one of two"
    parts = []
    for one in entries:
        value, usual = one.values[one.found[0]], one.usual
        parts.append(f"{one.label}: {value} instead of {usual}")
        if isinstance(value, frozenset) and isinstance(usual, frozenset):  # of lines
            own, theirs = (list_words(f"'{line}'" for line in sorted(some)) for some in (value - usual, usual - value))
            parts[-1] = f"it says {own} instead of {theirs}".replace("{}", "N")
    words = "; ".join(parts)
    verb = "differs" if len(first.siblings) == 1 else "differ"
    kind = f"; {list_words(sorted(first.hosts))} may be of another kind" if first.is_machine else ""
    return f"{who} {verb} from {others} {first.group} ({words}){kind}"


_AMOUNTS, _STATES = ("none", "some", "all"), ("unconnected", "connected")


def _speed(way: str) -> tuple[int, bool]:
    """Return how fast a connection is, as far as that is the same on all machines."""
    return {"P2P": 3, "SHM": 2, "NET": 1}.get(way.partition("/")[0], 0), "Socket" not in way


_NICS = "ibstat; ls /dev/infiniband   # there and on another one, in the container: the same devices, all active?"
_SET = "grep -s {label} /etc/nccl.conf ~/.nccl.conf; env | grep {label}   # there and on another one"
_ALIKE = "nvidia-smi topo -m; ls -l /dev/infiniband; env | grep NCCL_   # there and on another one: what differs?"
_NOW = "py-spy dump --pid <pid>   # there: where is it now? Or is its log cut?"
_IMAGE = "ldconfig -p | grep libnccl; nvidia-smi   # there and on another one: the same image and driver?"
_INNER, _OUTER = ("intra-node path", "topology"), ("network", "gpudirect", "topology")
_ANY = ("environment", *_INNER, *_OUTER)
_SETTING = Attribute("setting", _SET, _ANY)
_NICS_SEEN = Attribute("NICs seen", _NICS, _OUTER, lt, is_narrow=True, is_equipment=True)
_LINKS = Attribute("links of NICs", _NICS, _OUTER, lambda own, usual: own not in usual and usual not in own)
_ORDER = Attribute("order of GPUs by bus id", _ALIKE, ("topology",))
_RELEASE = Attribute("NCCL", _IMAGE, (*_ANY, "failures"))
_DRIVER = Attribute("CUDA driver", _IMAGE, (*_ANY, "failures"), is_equipment=True)
_CHANNELS = Attribute("channels", _ALIKE, _ANY, lt, least=2)
_NVLS = Attribute("channels of NVLS", _ALIKE, _ANY, lt, least=2)
_STATE = Attribute("state", _NOW, (*_ANY, "failures"), lambda one, _: one == _STATES[0], is_progress=True)
_PEERS = Attribute("peers that it connects to", _NOW, (*_ANY, "failures"), lt, is_progress=True)
_INSIDE = Attribute(
    "connections inside the host", _ALIKE, _INNER, lambda way, usual: _speed(way) < _speed(usual), least=2
)
_SHARING = Attribute("memory shared between GPUs by", _ALIKE, (*_ANY, "failures"))
_BETWEEN = Attribute("connections between hosts", _ALIKE, _OUTER, _INSIDE.worse)
_GDR = Attribute(
    "connections with GPUDirect RDMA",
    _ALIKE,
    _OUTER,
    lambda amount, usual: _AMOUNTS.index(amount) < _AMOUNTS.index(usual),
    is_narrow=True,
)
_NICS_USED = Attribute("NICs used", _NICS, _OUTER, lt)
_WORDS = Attribute("what it says", _ALIKE, _ANY, lambda words, usual: bool(usual - words and words - usual), least=4)
"""One says something else instead of what the others say; that it says more does not count."""
_CHOICES = {agreement.name for agreement in AGREEMENTS if agreement.is_choice}
"""Variables that name devices, which hosts may call differently."""
_OWN = (
    *("NCCL_COMM_ID", "NCCL_LAUNCH_MODE", "NCCL_DEBUG", "_DEBUG_FILE", "_DEBUG_SUBSYS"),
    *("_DUMP_FILE", "_DUMP_FILE_RANK"),
)
"""Ends of variables that one rank reads, or that every rank may have of its own."""
_COMPARED = (events.EnvSetting, events.NetDevices, events.NcclVersion, events.CudaDriver)
"""Statements of which the values are compared."""
_HOSTS, _PAIRS, _SAME_GPU = _OF_MACHINES = "hosts", "pairs of the same GPUs", "ranks with the same GPU"
"""Groups of hosts of one kind, or of what they have."""
_ADDRESS = compile_later(r"0x[0-9a-f]+|\d+(?:\.\d+){3}|<\d+>")


class _Start(NamedTuple):
    """A process whose first initialisation is whole in the log: all siblings go the same way up to its end."""

    ranks: frozenset[int]
    begin: Begin
    shape: tuple[int | None, ...]

    def has(self, line: Evidence) -> bool:
        return line.source == self.begin.source and line.order <= self.begin.until

    def sibling(self, lines: Callable[[], Iterable[Evidence]]) -> Sibling:
        host, pid = self.begin.process[:2]
        kind, name = ("rank", "") if self.ranks else ("process", f"{pid} of {host}")
        return Sibling(kind, name, frozenset((host,)), self.ranks, lines)


_Table = dict[Process, tuple[Any, Notice, int]]  # what processes state, in which notice, and at which place of it
_Groups = Iterator[tuple[Attribute, Mapping[Sibling, Hashable], str, str]]
"""Groups of siblings, as :func:`find_odd` takes them."""


class Observer:
    """Compares the siblings of a job."""

    def __init__(self, facts: Facts) -> None:
        self._facts, self._is_global = facts, facts.job.rank_space == "global"
        self._ranks_on = {host.name: frozenset(host.ranks) for host in facts.job.hosts if is_named(host.name)}
        self._local = {rank: at for ranks in self._ranks_on.values() for at, rank in enumerate(sorted(ranks))}
        # The processes with their first lines and the end of their first initialisation, in sound sources.
        torn = {source.name for source in facts.job.sources if source.damaged_lines or source.repaired_lines}
        begins = (events.BootstrapInterface, events.NcclVersion, events.CudaDriver)
        opened = {process for kind in begins for one in facts.with_event(kind) for process in one.processes}
        first: dict[Process, tuple[Begin, CommunicatorInfo]] = {}
        ranks_of: defaultdict[Process, set[int]] = defaultdict(set)
        for comm in facts.job.communicators:
            for begin in comm.begins if comm.parent is None and comm.color is None else ():
                known = first.get(begin.process)
                if known is None or (known[0].source == begin.source and begin.order < known[0].order):
                    first[begin.process] = begin, comm
                if self._is_global:
                    ranks_of[begin.process] |= global_ranks(comm, (begin.member,))
        self._begun = Counter(process.host for process in first)
        self._starts = {
            process: _Start(frozenset(ranks_of[process]), begin, (comm.nranks, comm.nnodes, comm.local_ranks))
            for process, (begin, comm) in first.items()
            if begin.is_complete and begin.source not in torn and process in opened
        }
        self._shapes = group_values((process.host, start.shape) for process, start in self._starts.items())
        ids = facts.bus_ids()  # hosts with others are of another kind, if some hosts have the same
        counts = Counter(ids.values())
        kinds, lone = [kind for kind in counts if counts[kind] > 1], {host for host in ids if counts[ids[host]] == 1}
        # Few among many of one kind are compared with these all the same.
        self._lone = lone if len(kinds) == 1 and len(lone) <= max(1, len(ids) // 8) else set()
        self._machines = ids if kinds and not self._lone else {}

    def list_odd(self) -> list[list[Odd]]:
        """Return what is odd, by who is odd."""
        groups = [self._compare_values(*key, table) for key, table in self._tables()]
        groups += [self._compare_words(), self._compare_channels()]
        ranks = set(chain.from_iterable(start.ranks for start in self._starts.values()))
        if self._is_global and len(ranks) == self._facts.job.world_size:
            paths = self._facts.paths_with_hardware.where(lambda kind: not kind.doubtful)
            between = paths.where(lambda kind: kind.scope == "inter")
            inside = paths.where(lambda kind: kind.scope == "intra")
            groups += [self._compare_pairs(inside), self._compare_sharing(inside)]
            groups += [compare(between, side) for side in SIDES for compare in (self._compare_ways, self._compare_gdr)]
            groups += [self._compare_nics(between), self._compare_peers(), self._compare_order(paths)]
        odd = filter(None, (find_odd(*group) for group in chain.from_iterable(groups)))
        found = [one.with_fields(is_machine=one.group in _OF_MACHINES and one.hosts <= self._lone) for one in odd]
        return join(found, self._ranks_on)

    def _kind(self, host: str) -> Hashable:
        """Return what is equal for hosts that can be compared."""
        return len(self._ranks_on[host]), self._machines.get(host)

    def _tables(self) -> Iterator[tuple[tuple[Attribute, str], _Table]]:
        tables: defaultdict[tuple[Attribute, str], _Table] = defaultdict(dict)
        left_out: set[str] = set()
        for notice in self._facts.job.notices:
            match notice.event:
                case events.EnvSetting(name=name, value=value, origin=origin):
                    table = tables[_SETTING, name]
                    if origin == "plugin" or name.endswith(_OWN):
                        left_out.add(name)  # it prints it in a form of its own
                case events.NetDevices(net=net, devices=devices) if devices:
                    table, value = tables[_NICS_SEEN, f"{net} devices seen"], len(devices)
                    links = " and ".join(sorted({str(device[-1]) for device in devices if len(device) > 3}))
                    for row, process in enumerate(notice.processes if links else ()):
                        tables[_LINKS, ""].setdefault(process, (links, notice, row))
                case events.NcclVersion(version=value):
                    table = tables[_RELEASE, ""]
                case events.CudaDriver(cuda_version=value):
                    table = tables[_DRIVER, ""]
                case _:
                    continue
            for row, process in enumerate(notice.processes):  # the first value counts, and the longest list
                if process not in table or (isinstance(value, int) and table[process][0] < value):
                    table[process] = value, notice, row
        for (attribute, label), table in tables.items():
            is_partial = attribute is _SETTING and not self._starts.keys() <= table.keys()
            if label not in left_out and (is_partial or len({value for value, *_ in table.values()}) > 1):
                yield (attribute, label), table

    def _compare_values(self, attribute: Attribute, label: str, table: _Table) -> _Groups:
        """Compare the ranks of each host, those of the job, and hosts."""
        siblings, values = {}, {}
        for process, start in self._starts.items():
            value, notice, row = table.get(process, (ABSENT, None, 0))
            lines = [notice.lines[row]] if notice else []
            if not all(map(start.has, lines)):
                value, lines = ABSENT, []  # what it states later not all state
            if value != ABSENT or attribute is _SETTING:
                one = start.sibling(partial(iter, lines))
                siblings[process], values[one] = one, value
        groups = group_values(
            ((f"ranks of host {process.host}", self._starts[process].shape), process)
            for process in siblings
            if process.host in self._ranks_on
        )
        shapes = {self._starts[process].shape for process in siblings}
        if len(shapes) == 1 and attribute is not _NICS_SEEN and label not in _CHOICES:
            groups["ranks of the job", shapes.pop()] = list(siblings)
        # Rank 0 prints some variables alone.
        is_of_all = attribute is not _SETTING or label in {agreement.name for agreement in AGREEMENTS}
        for (group, _), some in groups.items():
            own = [siblings[process] for process in some if is_of_all or self._starts[process].begin.member]
            yield attribute, {one: values[one] for one in own}, group, label
        if label in _CHOICES:
            return
        # Hosts with all their ranks; where there are several, a line that all of them lack was not lost.
        by_kind: dict[Hashable, dict[Sibling, Any]] = defaultdict(dict)
        for host, ranks in group_values((process.host, one) for process, one in siblings.items()).items():
            stated, of_host = {values[one] for one in ranks}, self._shapes[host]
            if host not in self._ranks_on or len(of_host) < self._begun[host]:
                continue
            if attribute is _NICS_SEEN or (len(stated) == 1 and (len(of_host) > 1 or ABSENT not in stated)):
                shown = partial(chain.from_iterable, [one.lines() for one in ranks])
                kind = self._kind(host), frozenset(of_host)
                by_kind[kind][self._host(host, shown)] = max(stated) if attribute is _NICS_SEEN else stated.pop()
        for alike in by_kind.values():
            yield attribute, alike, _HOSTS, label

    def _compare_words(self) -> _Groups:
        """Compare the other lines, by what they are about: those of the ranks of a host, and those of hosts."""
        said: defaultdict[str, list[tuple[str, Notice]]] = defaultdict(list)
        for notice in self._facts.job.notices:
            if notice.level == "INFO" and notice.event is not None and not isinstance(notice.event, _COMPARED):
                words = _ADDRESS.sub("{}", notice.message)
                # Its first two words say what a line is about.
                said[" ".join(template(words).split()[:2])].append((words, notice))
        for topic, notices in said.items():
            if len({words for words, _ in notices}) < 2:
                continue  # so it is with most, whose lines need not be quoted
            table: dict[Process, dict[str, Evidence]] = {}  # what each says while it begins, with the first line of it
            for words, notice in notices:
                for process, line in zip(notice.processes, notice.lines, strict=True):
                    start = self._starts.get(process)
                    if start and start.has(line):
                        table.setdefault(process, {}).setdefault(words, line)
            exact = Counter(chain.from_iterable(table.values()))
            if len(exact) < 2:
                continue
            alike = group_values((template(words), words) for words in exact)
            shown = {
                words: words if 2 * max(map(exact.__getitem__, some)) > sum(map(exact.__getitem__, some)) else general
                for general, some in alike.items()
                for words in some
            }
            values = {process: frozenset(shown[words] for words in own) for process, own in table.items()}
            by_host: defaultdict[str, dict[Sibling, frozenset[str]]] = defaultdict(dict)
            for process, value in values.items():
                if process.host in self._ranks_on:
                    by_host[process.host][self._starts[process].sibling(table[process].values)] = value
            hosts: defaultdict[Hashable, dict[Sibling, frozenset[str]]] = defaultdict(dict)
            for host, own in by_host.items():
                yield _WORDS, own, f"ranks of host {host}", topic
                counts = Counter(chain.from_iterable(own.values()))
                usual = frozenset(words for words, times in counts.items() if 2 * times > len(own))
                if len(own) == self._begun[host]:
                    lines = partial(chain.from_iterable, [one.lines() for one in own])
                    hosts[self._kind(host), frozenset(self._shapes[host])][self._host(host, lines)] = usual
            for group in hosts.values():
                yield _WORDS, group, _HOSTS, topic

    def _compare_channels(self) -> _Groups:
        """Compare communicators of one split, or of one shape, with no rank (of the job, else no process) in common."""
        twins = group_values(
            ((comm.parent, comm.ordinal, comm.nranks, comm.nnodes, comm.local_ranks), comm)
            for comm in self._facts.job.communicators
            if comm.nranks > 1 and comm.nnodes is not None and (comm.ordinal or len(comm.started) == comm.nranks)
        )
        for group in twins.values():
            members: list[object] = [rank for comm in group for rank in comm.ranks]
            if not self._is_global:
                members = [begin.process for comm in group for begin in comm.begins]
            if len(group) < 2 or None in members or len(members) != len(set(members)):
                continue
            twin = {comm.id: self._twin(comm) for comm in group}
            alike = f"communicators of {group[0].nranks} ranks"
            for attribute, field in ((_CHANNELS, "coll"), (_NVLS, "nvls")):
                values: dict[Sibling, int] = {}
                for comm in group:
                    counts = {getattr(one, field) for one in comm.layout.counts()}
                    if len(counts) == 1 and None not in counts:
                        values[twin[comm.id]] = counts.pop()
                yield attribute, values, alike, ""
            whole = [comm for comm in group if all(begin.process in self._starts for begin in comm.begins)]
            states = {twin[comm.id]: bool(self._facts.paths_of(comm)) for comm in whole}
            yield _STATE, {one: _STATES[state] for one, state in states.items()}, alike, ""
            if not self._is_global:
                for attribute, scope in ((_INSIDE, "intra"), (_BETWEEN, "inter")):
                    yield attribute, dict(self._slowest_ways(whole, scope)), alike, ""

    def _slowest_ways(self, comms: Iterable[CommunicatorInfo], scope: str) -> Iterator[tuple[Sibling, str]]:
        """Yield the slowest connections of communicators, whose ranks are not those of the job."""
        for comm in comms:
            paths = self._facts.paths_of(comm).where(lambda kind: kind.scope == scope and not kind.doubtful)
            if paths:
                way = min(map(_slowest, paths.kinds), key=_speed)
                slow = partial(paths.where, {kind for kind in paths.kinds if _slowest(kind) == way}.__contains__)
                yield self._twin(comm).with_fields(lines=partial(_first_line, slow), paths=slow), way

    def _twin(self, comm: CommunicatorInfo) -> Sibling:
        ranks = frozenset(comm.known_ranks if self._is_global else ())
        return Sibling("communicator", comm.id, frozenset(comm.hosts), ranks, comm.layout.channels)

    def _compare_peers(self) -> _Groups:
        """Compare how many others the ranks of an all-to-all connect to, by their own lines; half counts as all."""
        comms = self._facts.job.communicators
        for ranks, same in group_values((frozenset(global_ranks(one, one.completed)), one) for one in comms).items():
            paths, most = reduce(or_, map(self._facts.paths_of, same)), len(ranks) - 1
            if same[0].nranks > most + 1 or len(paths) < most * most or most < _MAJORITY:
                continue
            own = paths.where(lambda kind: not kind.doubtful and (kind.transport != "NET" or kind.ends("send")))
            peers = Counter(src for src, _ in own.distinct("src", "dst"))
            values: dict[Sibling, int] = {}
            for host, there in self._ranks_on.items():
                for rank in ranks & there:
                    shown = partial(paths.filter_values, ("src", "dst"), lambda *ends, rank=rank: rank in ends)
                    one = Sibling(
                        "rank", str(rank), frozenset((host,)), frozenset((rank,)), partial(_first_line, shown)
                    )
                    values[one] = most if 2 * peers[rank] >= most else peers[rank]
            if Counter(values.values())[most] * 2 > len(ranks):
                yield _PEERS, values, f"ranks of {same[0].id}", ""

    def _compare_order(self, paths: Selection) -> _Groups:
        """Compare in which order the ranks of hosts have their GPUs, by the bus ids of these."""
        groups: dict[Hashable, dict[Sibling, str]] = defaultdict(dict)
        ids = {rank: gpu.bus_id for rank, gpu in self._facts.job.gpus.items()}
        for host, ranks in self._ranks_on.items():
            own = [bus_id for rank in sorted(ranks) if (bus_id := ids.get(rank))]
            if len(set(own)) == len(ranks) > 1:
                shown = partial(paths.filter_values, ("src_host",), partial(_are, (host,)))
                places = [sorted(own, key=lambda one: (len(one), one)).index(bus_id) for bus_id in own]
                groups[self._kind(host)][self._host(host, partial(_first_line, shown))] = " ".join(map(str, places))
        for group in groups.values():
            yield _ORDER, group, _HOSTS, ""

    def _compare_pairs(self, inside: Selection) -> _Groups:
        if len(set(map(_slowest, inside.kinds))) < 2:
            return
        groups: dict[Hashable, dict[Sibling, str]] = defaultdict(dict)
        for src, dst, host, way in inside.values("src", "dst", "src_host", _slowest):
            if host in self._ranks_on:
                paths = partial(inside.filter_values, ("src", "dst"), partial(_are, (src, dst)))
                lines, both = partial(_first_line, paths), frozenset((src, dst))
                one = Sibling("pair", f"{src} -> {dst}", frozenset((host,)), both, lines, paths)
                groups[self._kind(host), self._local[src], self._local[dst]][one] = way
        for group in groups.values():
            yield _INSIDE, group, _PAIRS, ""

    def _compare_sharing(self, inside: Selection) -> _Groups:
        """Compare how ranks of hosts share GPU memory: through handles of cuMem or of the older IPC, or by pointers."""
        inside = inside.where(lambda kind: kind.transport == "P2P")
        if len(set(map(_sharing, inside.kinds))) < 2:
            return
        ways: dict[str, set[str]] = group_sets(inside.values("src_host", _sharing))
        groups: dict[Hashable, dict[Sibling, str]] = defaultdict(dict)
        for host in filter(ways.__contains__, self._ranks_on):
            shown = partial(inside.filter_values, ("src_host",), partial(_are, (host,)))
            own = self._host(host, partial(_first_line, shown))
            groups[self._kind(host)][own] = ", ".join(sorted(ways[host]))
        for group in groups.values():
            yield _SHARING, group, _HOSTS, ""

    def _compare_ways(self, between: Selection, side: str) -> _Groups:
        """Compare the connections between hosts that the same GPUs of hosts have."""
        ways: dict[tuple[int, str], str] = {}
        for rank, host, way in between.distinct(RANKS[side], HOSTS[side], _slowest):
            if host in self._ranks_on:
                ways[rank, host] = min(ways.get((rank, host), way), way, key=_speed)
        if len(set(ways.values())) > 1:
            of_way = group_values((_slowest(kind), kind) for kind in between.kinds)
            slow = {way: between.where(kinds.__contains__) for way, kinds in of_way.items()}
            for group in self._by_gpu(ways, side, between, slow).values():
                yield _BETWEEN, group, _SAME_GPU, ""

    def _compare_gdr(self, between: Selection, side: str) -> _Groups:
        """Compare how many connections of the same GPUs of hosts use GPUDirect RDMA, then those of a host."""

        def use(kind: PathKind) -> frozenset[bool]:
            return frozenset([end.gdr for end in kind.ends(side)])

        has: dict[tuple[int, str], frozenset[bool]] = defaultdict(frozenset)
        for rank, host, some in between.distinct(RANKS[side], HOSTS[side], use):
            if host in self._ranks_on and some:
                has[rank, host] |= some
        if len(set(has.values())) < 2:
            return
        amounts = {key: _AMOUNTS[2 * (True in some) - (len(some) > 1)] for key, some in has.items()}
        staged = between.where(lambda kind: False in use(kind))
        by_host: dict[str, dict[Sibling, str]] = defaultdict(dict)
        for group in self._by_gpu(amounts, side, between, dict.fromkeys(_AMOUNTS, staged)).values():
            yield _GDR, group, _SAME_GPU, ""
            for one, amount in group.items():  # a GPU that has none on any host is far from its NIC
                by_host[min(one.hosts)][one] = amount if len(set(group.values())) > 1 else "all"
        for host, group in by_host.items():
            yield _GDR, group, f"ranks of host {host}", ""

    def _by_gpu(
        self, values: Mapping[tuple[int, str], str], side: str, between: Selection, slow: Mapping[str, Selection]
    ) -> dict[Hashable, dict[Sibling, str]]:
        """Return the values of ranks by the place of their GPUs on hosts of one kind."""
        groups: dict[Hashable, dict[Sibling, str]] = defaultdict(dict)
        for (rank, host), value in values.items():
            own = partial(_are, (rank,))
            shown, paths = (partial(some.filter_values, (RANKS[side],), own) for some in (between, slow[value]))
            one = Sibling("rank", str(rank), frozenset((host,)), frozenset((rank,)), partial(_first_line, shown), paths)
            groups[self._kind(host), self._local[rank]][one] = value
        return groups

    def _compare_nics(self, between: Selection) -> _Groups:
        """Compare the number of NICs that hosts use whose same GPUs have connections."""
        used = nics_used(between)
        gpus: dict[str, set[int]] = defaultdict(set)
        for side in SIDES if len(set(map(len, used.values()))) > 1 else ():
            for rank, host in between.distinct(RANKS[side], HOSTS[side]):
                if host in used and host in self._ranks_on:
                    gpus[host].add(self._local[rank])
        for hosts in group_values((self._kind(host), host) for host in gpus).values():
            if len({frozenset(gpus[host]) for host in hosts}) == 1:
                shown = {host: partial(between.filter_values, ("src_host",), partial(_are, (host,))) for host in hosts}
                group = {self._host(host, partial(_first_line, shown[host])): len(used[host]) for host in hosts}
                yield _NICS_USED, group, _HOSTS, ""

    def _host(self, host: str, lines: Callable[[], Iterable[Evidence]]) -> Sibling:
        return Sibling("host", host, frozenset((host,)), self._ranks_on[host], lines)


def _are(wanted: tuple[object, ...], *values: object) -> bool:
    return values == wanted


def _first_line(pick: Callable[[], Selection]) -> Iterable[Evidence]:
    return pick().take(1).first_lines()


def _sharing(kind: PathKind) -> str:
    """Return the part of ``P2P/CUMEM/read`` that says how the memory is shared."""
    return kind.detail.partition("/")[2].partition("/")[0]


def _slowest(kind: PathKind) -> str:
    return min((kind.detail, *(way.detail for way in kind.also)), key=_speed)
