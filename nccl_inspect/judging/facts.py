"""The facts that rules query: the job with its platform and topology."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from nccl_inspect.event import types as events
from nccl_inspect.event.base import is_named
from nccl_inspect.judging.statements import is_error, is_forced, is_survived, rank_prefix, value
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import OVER_TCP, Gpu, parse_bracket
from nccl_inspect.model.job import CommunicatorInfo, Job, Notice, Setting
from nccl_inspect.model.paths.path import P2P_CLASSES, SIDES, End, PathKind
from nccl_inspect.model.paths.table import Paths, Selection, refine_kinds
from nccl_inspect.model.statements import usage
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.wording import list_words

if TYPE_CHECKING:
    from nccl_inspect.platforms import Platform
    from nccl_inspect.topology import Topology


_Result = TypeVar("_Result")
_Event = TypeVar("_Event", bound=events.Event)


def once(make: Callable[[Facts], _Result]) -> Callable[[Facts], _Result]:
    """Compute what a function of the facts returns once for each job."""

    @wraps(make)
    def compute_once(facts: Facts) -> _Result:
        if make not in facts.computed:
            facts.computed[make] = make(facts)
        result: _Result = facts.computed[make]
        return result

    return compute_once


class Facts:
    """A job, its platform and its topology.

    Args:
        job: without findings.
        platform: the machine type, with what this job can expect of it.
        topologies: from ``--topology``, from files beside the log, and those that the log itself proves.
        hardware: the confidence in the known links between GPUs.
    """

    def __init__(
        self, job: Job, platform: Platform | None = None, topologies: Sequence[Topology] = (), hardware: str = "certain"
    ) -> None:
        self.job, self.platform, self.topologies, self.hardware = job, platform, topologies, hardware
        self._of_communicator: dict[str, Selection] = {}
        self.computed: dict[Callable[[Facts], Any], Any] = {}  # the results of functions that are computed :func:`once`
        self._by_event: dict[type[events.Event], list[Notice]] = {}
        entries = list(enumerate(job.notices))
        self._by_production = group_values((entry[1].production, entry) for entry in entries)
        self._by_role = group_values((role, entry) for entry in entries for role in entry[1].roles)
        self.paths_with_hardware = self._with_hardware(job.paths)

    def _with_hardware(self, paths: Paths) -> Paths:
        fabric = ranks_in(self.notices("nccl/nvls-available"))
        if not fabric and not self.topologies:
            return paths
        ways: dict[tuple[str | None, bool], int] = {(None, False): 0}
        marking = [0] * len(paths)
        local = paths.where(lambda kind: kind.transport == "P2P" or kind.scope == "intra")
        ends = local.values("src_host", "src", "src_gpu", "dst", "dst_gpu")
        for row, (host, src, src_gpu, dst, dst_gpu) in zip(local.rows, ends, strict=True):
            hardware = self._pair_class(host, src, src_gpu, dst, dst_gpu), fabric.issuperset((src, dst))
            marking[row] = ways.setdefault(hardware, len(ways))
        keys = list(ways)
        return refine_kinds(
            paths, marking, lambda kind, mark: kind.with_fields(pair_class=keys[mark][0], on_fabric=keys[mark][1])
        )

    def link(self, kind: PathKind) -> str | None:
        """NVLink or PCIe of a P2P path, by the nearest evidence: the pair, the machine type, an NVSwitch of both."""
        if kind.transport != "P2P":
            return None
        if kind.detail.startswith("P2P/MNNVL"):
            return "NVLink"
        if pair_class := kind.pair_class or kind.gpu_class:
            on_pcie = pair_class.startswith(("PIX", "PXB", "PHB", "NODE", "SYS"))
            return "NVLink" if pair_class.startswith("NV") else "PCIe" if on_pcie else None
        if self.platform and self.platform.nvlink is not None:
            return "NVLink" if self.platform.nvlink else "PCIe"
        return "NVLink" if kind.on_fabric else None

    def expected_transport(self, kind: PathKind) -> str | None:
        """Return the best transport that a pair could have; None if unknown."""
        if kind.scope == "inter":
            return "NET/GDRDMA" if kind.transport == "NET" and self.platform and self.platform.gdr else None
        allowed = self.allows_p2p(kind) if kind.scope == "intra" else None
        if allowed is None:
            return None
        named = kind.pair_class or ("NVLink" if self.platform and self.platform.nvlink else None)
        return (f"P2P ({named})" if named else "P2P") if allowed else "SHM"

    def paths(self, scope: str | None = None, transport: str | None = None, net: str | None = None) -> Selection:
        """Return the paths of that kind, even if it is only one of several connections between the ranks."""
        wanted = {"scope": scope, "transport": transport, "net": net}
        asked = [(name, value) for name, value in wanted.items() if value is not None]
        return self.paths_with_hardware.where(lambda kind: all(getattr(kind, name) == value for name, value in asked))

    def idle_nvlink(self) -> Selection:
        """Return the pairs of a host that are known to have NVLink, by the topology or the platform, and use no P2P."""
        on_all = "NV" if self.platform and self.platform.nvlink and self.platform.p2p else ""
        return self.paths("intra").where(
            lambda kind: kind.transport != "P2P" and (kind.pair_class or on_all).startswith("NV")
        )

    def no_paths(self) -> Selection:
        """Return an empty selection of paths."""
        return Selection(self.paths_with_hardware.table, ())

    def paths_of(self, comm: CommunicatorInfo) -> Selection:
        """Return the paths that a communicator has connections on."""
        if comm.id not in self._of_communicator:
            rows = self.paths_with_hardware.table.rows_in(comm.id)
            self._of_communicator[comm.id] = Selection(self.paths_with_hardware.table, (), rows)
        return self._of_communicator[comm.id]

    @once
    def inter_host_net_paths(self) -> Selection:
        """Network paths that leave the host or, in a fragment, may do so."""
        return self.paths(transport="NET").where(lambda kind: kind.scope != "intra")

    def none_initialized(self, comms: Iterable[CommunicatorInfo]) -> bool:
        """Return whether no rank of these communicators finished the initialization, as far as the log shows."""
        return not any(comm.completed or comm.connected or self.paths_of(comm) for comm in comms)

    @once
    def inter_host_rdma_paths(self) -> Selection:
        """Return those of :meth:`inter_host_net_paths` that use an RDMA network: all but TCP sockets."""
        return self.inter_host_net_paths().where(lambda kind: kind.net not in OVER_TCP)

    def notices(self, *productions: str) -> list[Notice]:
        """Return the statements of these productions, in the order of the log."""
        return _join_in_order(self._by_production, productions)

    def with_role(self, *roles: str) -> list[Notice]:
        """Return the statements of productions with one of these roles (``role:``), in the order of the log."""
        return _join_in_order(self._by_role, roles)

    def with_event(self, kind: type[_Event], where: Callable[[_Event], bool] = lambda _: True) -> list[Notice]:
        """Return the statements with an event of that class, without lines that only complete others."""
        if kind not in self._by_event:
            every = (notice for notice in self.job.notices if isinstance(notice.event, kind))
            self._by_event[kind] = [notice for notice in every if not getattr(notice.event, "completes", "")]
        return [notice for notice in self._by_event[kind] if isinstance(notice.event, kind) and where(notice.event)]

    def completions(self, *statuses: int) -> list[Notice]:
        """Transfers that a NIC reports as failed, with one of these statuses of InfiniBand verbs."""
        return [notice for notice in self.with_role("completion-error") if value(notice, "status") in statuses]

    def plugin(self, kind: str, *statuses: str) -> list[Notice]:
        """Return statements about plugins of that kind with one of these statuses."""

        def fits(event: events.Event) -> bool:
            return isinstance(event, events.PluginStatus) and event.kind == kind and event.status in statuses

        return self.with_event(events.PluginStatus, fits)

    def settings(self, *names: str) -> list[Setting]:
        """Return the settings of these variables."""
        return [setting for setting in self.job.environment if setting.name in names]

    def enabled_settings(self, *names: str) -> list[Setting]:
        """Return the settings of these variables with a value other than 0."""
        return [setting for setting in self.settings(*names) if setting.value not in ("0", "")]

    def user_settings(self, *names: str) -> list[Setting]:
        """Return the settings of these variables by the user, without those by plugins."""
        return [setting for setting in self.settings(*names) if setting.source != "plugin"]

    def ranks_with(self, settings: Iterable[Setting]) -> set[int]:
        """Return the ranks that show these settings."""
        return {rank for one in settings for rank in (self.job.ranks_seen if one.ranks is None else one.ranks)}

    def errors(self, *, forced_ends: bool = True) -> list[Notice]:
        """Errors where they occurred, without echoes and without plugins that NCCL continued without.

        Args:
            forced_ends: include reports that the job was ended, which a hanging job does not have.
        """
        errors = [notice for notice in self.job.notices if is_error(notice) and not is_survived(notice, self.job)]
        return errors if forced_ends else [notice for notice in errors if not is_forced(notice)]

    def errors_of_rule(self, rule: str) -> list[Notice]:
        """Return the :meth:`errors` whose productions in the grammar name that rule (``rule: NAME``)."""
        return _by_rule(self).get(rule, [])

    def is_over(self) -> bool:
        """Return whether all communicators that were used were finalized in order."""
        return usage.is_over(self.job)

    def hosts(self) -> list[str]:
        """Return the hosts that the log shows."""
        return [host.name for host in self.job.hosts]

    def bus_ids(self) -> dict[str, frozenset[str | None]]:
        """Return the bus ids of the GPUs of hosts, which are equal on machines of one kind; None stands for unknown."""
        ids, hosts = {rank: gpu.bus_id for rank, gpu in self.job.gpus.items()}, self.job.hosts
        return {host.name: frozenset(map(ids.get, host.ranks)) for host in hosts if is_named(host.name)}

    def is_rccl(self) -> bool:
        """Return whether the library is RCCL, and the GPUs are of AMD."""
        return "rccl" in self.job.dialects

    def spans_hosts(self) -> bool:
        """Return whether the job is known to span hosts."""
        several = len([host for host in self.hosts() if is_named(host)]) > 1 or bool(self.paths("inter"))
        return several or any((comm.nnodes or 1) > 1 for comm in self.job.communicators)

    def has_no_pairs(self) -> bool:
        """Return whether the log shows that each host has one rank."""
        comms = self.job.communicators
        whole = all(len(comm.started) == comm.nranks or comm.local_ranks == 1 for comm in comms)
        return bool(comms) and whole and all(len(host.ranks) == 1 for host in self.job.hosts)

    def _pair_class(self, host: str | None, src: int, src_gpu: str | None, dst: int, dst_gpu: str | None) -> str | None:
        topologies = [topology for topology in self.topologies if topology.host in (None, host)]
        ends = self.gpu(src, src_gpu), self.gpu(dst, dst_gpu)
        kinds = [kind for topology in topologies if (kind := topology.pair(*ends))]
        return kinds[0] if len({kind.startswith(P2P_CLASSES) for kind in kinds}) == 1 else None

    def gpu(self, rank: int, bracket: str | None = None) -> Gpu:
        """Return the GPU of a rank as its initialization names it, else as the bracket of a connection line does."""
        gpu = self.job.gpus.get(rank)
        return parse_bracket(bracket) if gpu is None or (gpu.nvml_dev is None and gpu.bus_id is None) else gpu

    def allows_p2p(self, kind: PathKind) -> bool | None:
        """Return whether the hardware lets NCCL use P2P between these ranks; None if unknown."""
        if kind.pair_class:
            return kind.pair_class.startswith(P2P_CLASSES)
        return self.platform.p2p if self.platform else None


@once
def _by_rule(facts: Facts) -> dict[str, list[Notice]]:
    return group_values((notice.rule, notice) for notice in facts.errors())


def _join_in_order(index: Mapping[str, list[tuple[int, Notice]]], names: Iterable[str]) -> list[Notice]:
    places = {place: notice for name in names for place, notice in index.get(name, ())}
    return [places[place] for place in sorted(places)]


def global_ranks(comm: CommunicatorInfo, members: Iterable[int]) -> set[int]:
    """Return the global ranks of some ranks of a communicator, as far as the log shows them."""
    return {global_rank for rank in members if rank < len(comm.ranks) and (global_rank := comm.ranks[rank]) is not None}


def ends_of(paths: Selection, side: str) -> Iterator[tuple[str, int, End]]:
    """Host, rank and end of network paths at their ``send`` or ``receive`` side, each once; without unknown hosts."""
    for host, rank, ends in paths.distinct(HOSTS[side], RANKS[side], ENDS[side]):
        for end in ends if host else ():
            yield host, rank, end


ENDS: dict[str, Callable[[PathKind], frozenset[End]]] = {
    "send": lambda kind: frozenset(kind.ends("send")),
    "receive": lambda kind: frozenset(kind.ends("receive")),
}
"""The ends of kinds of network paths, as columns of a selection."""
HOSTS = {"send": "src_host", "receive": "dst_host"}  # the columns of the hosts at both ends
RANKS = {"send": "src", "receive": "dst"}  # those of the ranks


def nics_used(paths: Selection) -> dict[str, dict[int, set[int]]]:
    """Return the NICs of each host, by index, that its ends of network paths use, with the ranks that use them."""
    by_host: dict[str, dict[int, set[int]]] = {}
    for side in SIDES:
        for host, rank, end in ends_of(paths, side):
            if end.nic_index is not None:
                user = rank if end.pxn_rank is None else end.pxn_rank
                by_host.setdefault(host, {}).setdefault(end.nic_index, set()).add(user)
    return by_host


def hosts_with(job: Job, ranks: AbstractSet[int]) -> list[str]:
    """Return the hosts that have some of these ranks."""
    return [host.name for host in job.hosts if not ranks.isdisjoint(host.ranks)]


def list_remaining(facts: Facts, notices: Iterable[Notice]) -> set[int]:
    """Return the ranks that neither made one of these statements nor ended their work."""
    ended = {rank for comm in facts.job.communicators for rank in global_ranks(comm, comm.ended)}
    return set(facts.job.ranks_seen) - ranks_in(notices) - ended


def shares_ranks(job: Job) -> bool:
    """Return whether several processes have the same rank, each in its own communicator."""
    return job.rank_space == "communicator" and job.processes > len(job.ranks_seen)


def ranks_in(notices: Iterable[Notice]) -> set[int]:
    """Return the ranks that made a statement; where no line of its process names one, the rank in front of it."""
    ranks = (notice.ranks or (rank_prefix(notice),) for notice in notices)
    return {rank for several in ranks for rank in several if rank is not None}


def ranks_concerned(facts: Facts, notices: Iterable[Notice], *fields: str) -> set[int]:
    """Return the ranks that statements are about: those that they name in these fields, else those that made them."""
    ranks: set[int] = set()
    for notice in notices:
        texts = (str(value(notice, field)) for field in fields)  # one, or several: 1, 3
        named = [int(rank) for text in texts for rank in text.split(", ") if rank.isdecimal()]
        ranks |= members_named(facts, notice, named) or ranks_in([notice])
    return ranks


def members_named(facts: Facts, notice: Notice, members: Collection[int]) -> set[int]:
    """Return the global ranks in the communicator that a statement is about; empty if it may be about several."""
    comms = facts.job.communicators
    if not comms:
        return set(members)
    if notice.ranks:
        comms = _by_rank(facts).get(notice.ranks[0], [])
    elif len(comms) > 1:
        return set()
    fitting = {frozenset(global_ranks(comm, members)) for comm in comms if comm.nranks > max(members, default=0)}
    return set(fitting.pop()) if len(fitting) == 1 else set()


@once
def _by_rank(facts: Facts) -> dict[int | None, list[CommunicatorInfo]]:
    return group_values((rank, comm) for comm in facts.job.communicators for rank in comm.ranks)


def hosts_in(notices: Iterable[Notice]) -> set[str]:
    """Return the hosts of these statements."""
    return {host for notice in notices for host in notice.hosts}


def first_evidence(notices: Iterable[Notice]) -> list[Evidence]:
    """Return the first line of each statement."""
    return [notice.evidence[0] for notice in notices]


def lines_of(shown: Iterable[Evidence | Notice | Setting]) -> Iterator[Evidence]:
    """Yield lines, and the first ones of statements and settings."""
    for one in shown:
        if isinstance(one, Evidence):
            yield one
        else:
            yield from one.evidence[:1]


def as_shell(settings: Iterable[Setting]) -> str:
    """Settings as written in a shell."""
    return list_words(" or ".join(setting.assignments) for setting in settings)


def evidence_of_settings(settings: Iterable[Setting], limit: int = 2) -> list[Evidence]:
    """Return the first lines of each setting."""
    return [line for setting in settings for line in setting.evidence[:limit]]


def is_before(line: Evidence, other: Evidence) -> bool:
    """Return whether a line precedes another in the same source."""
    return line.source == other.source and line.order < other.order


def precedes(notice: Notice, other: Notice) -> bool:
    """Return whether a statement precedes another in the same source."""
    return is_before(notice.evidence[0], other.evidence[0])


def first_of_each(lines: Iterable[Evidence]) -> dict[str, int]:
    """Return the position of the first of these lines in each source."""
    return {source: min(orders) for source, orders in group_sets(line.position for line in lines).items()}


def cite_line(line: Evidence) -> str:
    """Return a line as cited in a sentence: ``job.log:12``."""
    return f"{line.source.rpartition('/')[2]}:{line.line}"
