"""Answers to single questions about a job: its hosts, NICs, bandwidth, ranks, settings, timings and memory.

Each is an :class:`Answer` of flat records: the commands of the same names print them, and the HTML report shows some.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field, fields
from itertools import zip_longest
from operator import itemgetter
from typing import Any, NamedTuple

from nccl_inspect import bandwidth
from nccl_inspect.answers import Column
from nccl_inspect.event import types as events
from nccl_inspect.event.base import PlacedEvent, Process, is_named
from nccl_inspect.judging.facts import ENDS, global_ranks
from nccl_inspect.judging.places import blamed_ranks
from nccl_inspect.judging.statements import is_error, is_survived, message_of, value
from nccl_inspect.model.communicators.rings_and_trees import PHASES
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import BUILT_IN, LastLine
from nccl_inspect.model.job import Job, Notice, Selection
from nccl_inspect.model.paths.build import listed_as
from nccl_inspect.model.versions import cuda
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.records import Frozen, Record, column, pick_fields
from nccl_inspect.util.times import are_in_order, moment
from nccl_inspect.util.wording import ranges

_Places = tuple[Sequence[int], Sequence[str | None]]


class Answer(NamedTuple):
    """A question about a job is answered by records, which are shown as a table."""

    record: type[Record]
    """The class of the records: a dataclass, whose fields are the keys of JSON and the columns of CSV."""
    noun: str  # of one record: `host`
    nothing: str  # what is said where there is no record
    rows: Callable[..., Sequence[Any]]  # makes the records of a job, in the order in which they are shown
    places: Callable[[Any], _Places | None]  # ranks and hosts, for filters; None if any will do
    order: str = ""  # of the columns of the table for people, where it is not that of the fields
    is_bad: Callable[[Any], bool] = bool  # whether a record deserves a mark

    @property
    def names(self) -> list[str]:
        """Return the fields of a record."""
        return [one.name for one in fields(self.record)]

    @property
    def columns(self) -> list[Column]:
        """Return the columns of the table for people."""
        shown = {one.name: Column(one.name, **one.metadata) for one in fields(self.record) if one.metadata}
        return [shown[name] for name in self.order.split() or shown]


def _name_line(source: str | None, line: int | None) -> str:
    return "" if source is None else f"{source.rpartition('/')[2] or source}:{line}"


def _one_place(row: Any) -> _Places:
    return [] if row.rank is None else [row.rank], [row.host]


def find_last(lines: Sequence[LastLine]) -> LastLine | None:
    """Return the line printed last: by time if all lines have the same clock, else in reading order."""
    if len(lines) < 2:
        return lines[0] if lines else None
    times = [moment(line.time) for line in lines]
    if are_in_order(*times):
        seconds = [time.seconds for time in times if time]
        return lines[max(range(len(lines)), key=lambda at: (seconds[at], lines[at].order))]
    last_source = lines[-1].source
    return max((line for line in lines if line.source == last_source), key=lambda line: line.order)


def last_line_fields(last: LastLine | None) -> dict[str, Any]:
    """Return when and where the last line of a rank or host was printed, as rows have it."""
    return {f"last_{name}": getattr(last, name, None) for name in ("time", "source", "line")}


# NICs

USED, IDLE, UNKNOWN = "used", "idle", "unknown"
_SPEEDS = {"nccl/nic-speed": "interface", "nccl/ib-device": "name"}
"""Productions with a speed in Mb/s, and the field that names the NIC."""
_VIRTUAL = 2  # parts that a list has for a virtual NIC: index and name, no port or address
_LAST = 1 << 30
_ONE_EACH = "SENDRECV"
"""The protocol of aws-ofi-nccl in which each NIC that it finds is a device; RDMA joins several to one."""


class NicRow(Frozen):
    """A NIC of a host."""

    host: str = column("host", is_host=True, folds=True)
    nic: str | None = column("NIC", text=lambda row: row.name)  # its name; None where the log has its index only
    nic_index: int | None
    network: str = column("network", goes=5, folds=True)  # `IB`, `Socket`, `AWS Libfabric`, …
    state: str = column("state")
    """``used``, ``idle`` (listed, and no connection line uses it while others of the host are used), or ``unknown``
    (the log has no network connection of this host, or is an excerpt)."""
    gpus: list[int] = column("GPUs", goes=4)  # NVML numbers of the GPUs whose ranks use it
    ranks: list[int]  # ranks that send or receive through it
    send_ranks: list[int] = column("sends", least=10)
    receive_ranks: list[int] = column("receives", least=10)
    pxn_ranks: list[int] = column("PXN for", goes=3, least=10)  # ranks of other GPUs whose data leaves through it (PXN)
    paths_out: int = column("paths out", goes=2)
    paths_in: int = column("paths in", goes=2)
    gdr: bool | str | None = column("GDR", goes=9)
    """GPUDirect RDMA: True, False, `partial` (on some paths only), None where nothing uses it."""
    link: str | None = column("link", goes=1, folds=True)  # `IB` or `RoCE`
    speed_mbps: int | None = column("Mb/s", goes=6, folds=True)  # as in the log (subsystem NET)

    @property
    def name(self) -> str:
        """Return its name for people."""
        return self.nic or f"index {self.nic_index}"


class _Nic(Record):
    """A NIC while what uses it is gathered."""

    nic: str | None
    nic_index: int | None
    link: str | None = None
    sends: set[int] = field(default_factory=set)
    receives: set[int] = field(default_factory=set)
    pxn: set[int] = field(default_factory=set)
    paths_out: int = 0
    paths_in: int = 0
    gdr: set[bool] = field(default_factory=set)


_Key = tuple[str, str, str]  # host, network, and name or index


def list_nics(job: Job) -> list[NicRow]:
    """Return a row for each NIC: hosts with idle ones first, each host's NICs by index."""
    listed: dict[_Key, tuple[int, str | None]] = {}  # when networks start: index, and kind of link
    for notice in job.notices:
        if isinstance(notice.event, events.NetDevices):
            for index, name, _, *link in (device for device in notice.event.devices if len(device) > _VIRTUAL):
                for host in notice.hosts:
                    listed.setdefault((host, notice.event.net, str(name)), (int(index), link[0] if link else None))
    nics = _find_used(job.paths, {(host, net, index): name for (host, net, name), (index, _) in listed.items()})
    busy = {(host, network) for host, network, _ in nics}
    _add_listed(nics, listed, busy)
    _add_counted(nics, job, busy)
    speeds = {
        (host, str(value(notice, _SPEEDS[notice.production]))): int(value(notice, "speed"))
        for notice in job.notices
        if notice.production in _SPEEDS
        for host in notice.hosts
    }
    # In an excerpt, the lines that use a NIC may be missing.
    hosts_in_use = set() if job.excerpt else {host for host, _ in busy}
    places = {host.name: place for place, host in enumerate(job.hosts)}
    entries = []
    for (host, network, _), nic in nics.items():
        ranks = nic.sends | nic.receives
        gpus = {gpu.nvml_dev for rank in ranks if (gpu := job.gpus.get(rank)) and gpu.nvml_dev is not None}
        entries.append(
            NicRow(
                **pick_fields(nic, "nic", "nic_index", "paths_out", "paths_in", "link"),
                host=host,
                network=network,
                state=USED if ranks else IDLE if host in hosts_in_use else UNKNOWN,
                gpus=sorted(gpus),
                ranks=sorted(ranks),
                send_ranks=sorted(nic.sends),
                receive_ranks=sorted(nic.receives),
                pxn_ranks=sorted(nic.pxn),
                gdr="partial" if len(nic.gdr) > 1 else next(iter(nic.gdr), None),
                speed_mbps=speeds.get((host, nic.nic or "")),
            )
        )
    idle = {row.host for row in entries if row.state == IDLE}

    def sort_key(row: NicRow) -> tuple[object, ...]:
        index = _LAST if row.nic_index is None else row.nic_index
        return row.host not in idle, places.get(row.host, len(places)), row.network, index, row.nic or ""

    return sorted(entries, key=sort_key)


NICS = Answer(
    NicRow,
    "NIC",
    "the log shows no NIC; NCCL lists NICs with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET",
    list_nics,
    is_bad=lambda row: row.state == IDLE,
    places=lambda row: ([*row.ranks, *row.pxn_ranks], [row.host]),
    order="host nic state gpus send_ranks receive_ranks pxn_ranks gdr network link speed_mbps paths_out paths_in",
)


def _find_used(paths: Selection, names: Mapping[tuple[str, str, int], str]) -> dict[_Key, _Nic]:
    nics: dict[_Key, _Nic] = {}
    over_net = paths.where(lambda kind: kind.net is not None)
    for side, columns in (("send", ("src_host", "src")), ("receive", ("dst_host", "dst"))):
        used = over_net.values(*columns, lambda kind: listed_as(kind.net or ""), ENDS[side])
        for (host, rank, network, ends), number in Counter(used).items():
            touched: dict[_Key, _Nic] = {}
            for end in ends if host else ():
                if end.nic_index is None:
                    continue
                nic_name = end.nic or names.get((host, network, end.nic_index))
                key = (host, network, nic_name or str(end.nic_index))
                nic = touched[key] = nics.setdefault(key, _Nic(nic_name, end.nic_index))
                nic.gdr.add(end.gdr)
                users = nic.sends if side == "send" else nic.receives
                users.add(rank if end.pxn_rank is None else end.pxn_rank)
                if end.pxn_rank is not None:  # what leaves by the NIC of another rank is that rank's use
                    nic.pxn.add(rank)
            for nic in touched.values():
                nic.paths_out += number * (side == "send")
                nic.paths_in += number * (side == "receive")
    return nics


def _add_listed(
    nics: dict[_Key, _Nic], listed: Mapping[_Key, tuple[int, str | None]], busy: AbstractSet[tuple[str, str]]
) -> None:
    """Add listed NICs that nothing uses, except ports that NCCL merged into a virtual NIC."""
    hosts = {host for host, _ in busy}
    merged = {(host, network, part) for host, network, name in nics if "+" in name for part in name.split("+")}
    for key, (index, link) in listed.items():
        host, network, name = key
        if key in nics:
            nics[key].link = link
        elif key not in merged and (link is not None or (host, network) in busy or host not in hosts):
            nics[key] = _Nic(name, index, link)


def _add_counted(nics: dict[_Key, _Nic], job: Job, busy: AbstractSet[tuple[str, str]]) -> None:
    """Add NICs that aws-ofi-nccl counts and nothing uses, if each is a device of its own."""
    single = {
        host
        for notice in job.notices
        if notice.production == "aws-ofi-nccl/ofi-transport-protocol" and value(notice, "protocol") == _ONE_EACH
        for host in notice.hosts
    }
    networks = {host: network for host, network in busy if network not in BUILT_IN}
    for notice in job.notices:
        if not isinstance(notice.event, events.OfiProvider):
            continue
        for host in notice.hosts if single.issuperset(notice.hosts) else ():
            for index in range(notice.event.nics or 0) if host in networks else ():
                nics.setdefault((host, networks[host], str(index)), _Nic(None, index))


# Hosts

_WEIGHTS = {"error": 3, "warning": 2, "info": 1}


class HostRow(Frozen):
    """A host."""

    host: str = column("host", is_host=True)
    severity: str | None = column("worst", goes=10)
    """The highest severity of the findings that name it; None without one."""
    paths_ok: int = column("ok")  # paths that begin or end there and are as good as expected
    paths_fallback: int = column("fallback")
    paths_unknown: int = column("unknown", goes=9)
    findings: list[str] = column("findings", goes=8, least=16)
    """Rules whose findings name the host or one of its ranks, worst first."""
    ranks: list[int] = column("ranks", goes=7, least=8)
    gpus: int = column("GPUs", goes=3)  # number of distinct GPUs in the log
    nics_used: list[str] = column("NICs", goes=4, text=lambda row: str(len(row.nics_used)) if row.nics_used else "-")
    nics_idle: list[str] = column("idle NICs", goes=6, least=8)
    """NICs that NCCL lists and no connection line uses, although other NICs of the host are used."""
    nccl_versions: list[str] = column("NCCL", goes=2, folds=True)
    cuda_versions: list[str] = column("driver", goes=1, folds=True)  # CUDA level of the driver
    last_time: str | None = column("last time", goes=3)  # of its last line, as the line has it
    last_source: str | None
    last_line: int | None = column("last line", goes=5, text=lambda row: _name_line(row.last_source, row.last_line))


def list_hosts(job: Job) -> list[HostRow]:
    """Return a row for each host: those with the worst findings first, then by slower paths than expected."""
    nics = group_values(((nic.host, nic.state), nic.name) for nic in list_nics(job))
    lines = group_values((line.process.host, line) for line in job.last_lines)
    verdicts: Counter[tuple[str | None, str]] = Counter()  # of paths; those within a host count once
    for (src, dst, verdict), number in Counter(
        job.paths.values("src_host", "dst_host", lambda kind: kind.verdict)
    ).items():
        verdicts.update({(host, verdict): number for host in (src, dst)})
    nccl = group_sets(
        (host, entry.event.version)
        for entry in job.notices
        if isinstance(entry.event, events.NcclVersion)
        for host in entry.hosts
    )
    drivers = group_sets(
        (host, cuda(str(entry.event.cuda_version)))
        for entry in job.notices
        if isinstance(entry.event, events.CudaDriver)
        for host in entry.hosts
    )
    in_order = sorted(job.findings, key=lambda finding: -_WEIGHTS[finding.severity])
    places = [(finding, set(finding.ranks), set(finding.hosts)) for finding in in_order]

    rows = []
    for host in job.hosts:
        about = [(f, ranks) for f, ranks, named in places if host.name in named or not ranks.isdisjoint(host.ranks)]
        is_culprit = (("host", host.name) in ((one.kind, one.name) for one in f.culprits) for f, _ in about)
        is_alone = (bool(ranks and ranks.issubset(host.ranks)) for _, ranks in about)
        last = find_last(lines.get(host.name, []))
        row = HostRow(
            host=host.name,
            severity=about[0][0].severity if about else None,
            paths_ok=verdicts[host.name, "ok"],
            paths_fallback=verdicts[host.name, "fallback"],
            paths_unknown=verdicts[host.name, "unknown"],
            findings=list(dict.fromkeys(finding.rule for finding, _ in about)),
            ranks=host.ranks,
            gpus=host.gpus,
            nics_used=nics.get((host.name, USED), []),
            nics_idle=nics.get((host.name, IDLE), []),
            nccl_versions=sorted(nccl.get(host.name, ())),
            cuda_versions=sorted(drivers.get(host.name, ())),
            **last_line_fields(last),
        )
        blamed = sum(map(max, is_culprit, is_alone))  # its name is the culprit, or only ranks of it are named
        weight = _WEIGHTS.get(row.severity or "", 0)
        rows.append(((weight, blamed, row.paths_fallback, len(row.nics_idle), row.paths_unknown), row))
    return [row for _, row in sorted(rows, key=itemgetter(0), reverse=True)]


HOSTS = Answer(
    HostRow,
    "host",
    "the log names no host",
    list_hosts,
    is_bad=lambda row: row.severity == "error" or row.paths_fallback > 0,
    places=lambda row: (row.ranks, [row.host]),
)


# Bandwidth


class BandwidthRow(Frozen):
    """An operation at one size; bandwidths are bus bandwidths in GB/s."""

    operation: str = column("operation", folds=True)
    type: str = column("type", goes=2, folds=True)
    ranks: int | None = column("ranks", folds=True)
    nodes: int | None = column("nodes", goes=4, folds=True)
    size: int = column("size", text=lambda row: bandwidth.size_text(row.size) if row.size else "pairs")
    measured_gbps: float = column("GB/s", text=lambda row: bandwidth.rate_text(row.measured_gbps))
    lower_gbps: float  # the other of out-of-place and in-place
    expected_low: float | None = column(
        "expected",
        text=lambda row: "-".join(map(bandwidth.rate_text, filter(None, (row.expected_low, row.expected_high)))),
    )
    expected_high: float | None
    ratio: float | None = column("of least", goes=5, text=lambda row: bandwidth.percent_text(row.ratio))
    """Of the least that is expected of large messages."""
    verdict: str = column("verdict")
    """`ok`, `low` or `unknown`; of a size `dip`, where smaller messages get far more, else nothing."""
    what: str = column("what is expected, or why not judged", goes=6, folds=True)
    """The hardware that is expected to give that, or why it is not judged."""
    tool: str = column("tool", goes=1, folds=True)
    line: str = column("line", goes=3)
    hosts: list[str]


_OF_ENTRY = ("operation", "type", "ranks", "nodes", "expected_low", "expected_high", "tool", "hosts")


def list_bandwidths(job: Job, *, of_sizes: bool = False) -> list[BandwidthRow]:
    """Return a row for each operation, the furthest behind first, or one for each size."""
    table = []
    for entry in sorted(job.bandwidth, key=lambda entry: (entry.verdict != "low", entry.ratio or 0)):
        lower = next((sized.lower for sized in entry.sizes if sized.size == entry.size), entry.measured_gbps)
        rows = [(entry.size, entry.measured_gbps, lower, entry.verdict)]
        if of_sizes:
            rows = [(one.size, one.gbps, one.lower, "dip" if one in entry.dips else "") for one in entry.sizes]
        for size, gbps, lower, verdict in rows:
            line = next((sized.line for sized in entry.sizes if sized.size == size), entry.line)
            table.append(
                BandwidthRow(
                    **pick_fields(entry, *_OF_ENTRY),
                    size=size,
                    measured_gbps=gbps,
                    lower_gbps=lower,
                    ratio=round(gbps / entry.expected_low, 3) if entry.expected_low else None,
                    verdict=verdict,
                    what=entry.reason or entry.what,
                    line=_name_line(line.source, line.line) if line else "",
                )
            )
    return table


BANDWIDTH = Answer(
    BandwidthRow,
    "result",
    "the log has no results of a benchmark; run all_reduce_perf of nccl-tests on the same hosts, and give its output",
    list_bandwidths,
    places=lambda row: ([], row.hosts) if row.hosts else None,
    order="operation ranks nodes type size measured_gbps expected_low ratio verdict what tool line",
)


# Ranks


class Error(NamedTuple):
    """The error that a process reports."""

    notice: Notice
    line: Evidence | None  # None if many processes report the same: only the first lines are kept
    is_echo: bool  # whether it only reports a failure elsewhere


def _find_first_errors(job: Job) -> dict[Process, Error]:
    """Return the first error of each process, in log order; errors that the job survived are left out."""
    errors: dict[Process, Error] = {}
    for notice in job.notices:
        tone = getattr(notice.event, "tone", "info")
        if (is_error(notice) and not is_survived(notice, job)) or tone == "echo":
            for process, line in zip_longest(notice.processes, notice.evidence[: len(notice.processes)]):
                errors.setdefault(process, Error(notice, line, not is_error(notice)))
    return errors


STATES = ("suspect", "failed", "missing", "silent", "seen", "begun", "initialised", "connected", "ended")
"""Of a rank, worst first; the help of the command says what they mean."""
_NO_RANK = 1 << 30
_MOST = 0.5  # share of the other ranks that must have continued for one to be called silent


class RankRow(Frozen):
    """A rank, or a process without one."""

    rank: int | None = column("rank")
    host: str | None = column("host", goes=8, is_host=True)
    pid: int | None = column("pid", goes=7)
    pod: str | None = column("pod", goes=4, least=12)
    """What the launcher or collector calls the printer: pod, container, node or worker."""
    local_rank: int | None = column("local", goes=2)
    gpu: int | None = column("GPU", goes=6)  # its number in NVML, as nvidia-smi lists GPUs (nvmlDev)
    bus_id: str | None = column("busId", goes=1)
    state: str = column("state")  # one of `STATES`
    last_time: str | None = column("last time", goes=3)  # of its last line, as the line has it
    last_source: str | None
    last_line: int | None = column("last line", goes=5, text=lambda row: _name_line(row.last_source, row.last_line))
    error: str | None = column("first error", goes=9, least=16)  # the first error that its process reports
    error_is_echo: bool  # the error is the effect of a failure elsewhere
    error_source: str | None
    error_line: int | None  # also None if many processes report the same


def list_ranks(job: Job) -> list[RankRow]:
    """Return one row per rank, the worst state first; without the world in the log, one per rank of its communicators.

    A process without a rank has a row of its own: it may be one of the missing ranks.
    """
    lines = group_values((rank, last_line) for last_line in job.last_lines for rank in last_line.ranks)
    last = {rank: line for rank, several in lines.items() if (line := find_last(several))}
    errors = _find_first_errors(job)
    progress = _progress(job)
    silent = _find_silent(job, last, errors)
    blamed = set(blamed_ranks(job))
    hosts = {rank: host.name for host in job.hosts for rank in host.ranks}
    local = job.local_ranks
    if not local and job.world_size is not None and len(job.ranks_seen) >= job.world_size:  # as NCCL counts them
        orders = [sorted(host.ranks) for host in job.hosts if is_named(host.name)]
        local = {rank: at for ranks in orders for at, rank in enumerate(ranks)}
    named = job.paths.ends()

    def row(rank: int | None, state: str, line: LastLine | None, error: Error | None) -> RankRow:
        name = line.process.host if line else hosts.get(-1 if rank is None else rank)
        gpu = None if rank is None else job.gpus.get(rank)
        shown = error.line if error else None
        return RankRow(
            rank=rank,
            host=name if is_named(name) else None,
            pid=line.process.pid if line and is_named(line.process.host) else None,
            pod=(line.process.apart.partition("#")[0] or None) if line else None,
            local_rank=None if rank is None else local.get(rank),
            gpu=getattr(gpu, "nvml_dev", None),
            bus_id=getattr(gpu, "bus_id", None),
            state=state,
            **last_line_fields(line),
            error=" ".join(message_of(error.notice).split()) if error else None,
            error_is_echo=error is not None and error.is_echo,
            error_source=getattr(shown, "source", None),
            error_line=getattr(shown, "line", None),
        )

    table = []
    for rank in sorted({*last, *named, *job.ranks_seen, *range(job.world_size or 0)}):
        error = errors.get(last[rank].process) if rank in last else None
        state = "missing" if rank not in last else progress.get(rank, "seen")
        if _has_failed(job, rank, error):
            state = "failed"
        elif rank in silent:
            state = "silent"
        elif rank in blamed and rank in last:
            state = "suspect"
        table.append(row(rank, state, last.get(rank), error))
    for line in job.last_lines:
        if not line.ranks and is_named(line.process.host):
            error = errors.get(line.process)
            table.append(row(None, "failed" if _has_failed(job, None, error) else "seen", line, error))
    table.sort(key=lambda row: _NO_RANK if row.rank is None else row.rank)  # by rank among the equally bad
    return sorted(table, key=lambda row: (row.rank not in blamed, STATES.index(row.state)))


RANKS = Answer(
    RankRow,
    "rank",
    "the log names no rank",
    list_ranks,
    is_bad=lambda row: row.state in ("suspect", "failed", "missing", "silent"),
    places=_one_place,
    order="rank state host pid pod local_rank gpu bus_id last_time last_line error",
)


def _has_failed(job: Job, rank: int | None, error: Error | None) -> bool:
    first = job.first_failure is not None and rank in job.first_failure.ranks
    return job.verdict == "failed" and (first or (error is not None and not error.is_echo))


def _progress(job: Job) -> dict[int, str]:
    """Return how far ranks got, in the most advanced communicator that has not ended."""
    roots = [comm for comm in job.communicators if comm.parent is None] or job.communicators
    reached: dict[int, list[str]] = {}
    for comm in roots:
        members = (comm.started, comm.completed, comm.connected, comm.ended)
        states = zip(("begun", "initialised", "connected", "ended"), members, strict=True)
        furthest = {rank: state for state, some in states for rank in global_ranks(comm, some)}
        for rank, state in furthest.items():
            reached.setdefault(rank, []).append(state)
    return {
        rank: max((state for state in states if state != "ended"), key=STATES.index, default="ended")
        for rank, states in reached.items()
    }


def _find_silent(job: Job, last: Mapping[int, LastLine], errors: Mapping[Process, Error]) -> set[int]:
    """Return ranks of a failed job whose lines stop before its first error, while most others continue after it."""
    begun = {error.line.source: error.line.order for error in reversed(list(errors.values())) if error.line}
    if job.verdict != "failed" or job.excerpt or not begun:
        return set()
    early = {rank for rank, line in last.items() if line.order < begun.get(line.source, 0)}
    ended = {rank for comm in job.communicators for rank in global_ranks(comm, comm.ended)}
    return early - ended if len(early) <= _MOST * (len(last) - 1) else set()


# Settings


class SettingRow(Frozen):
    """A variable with one of its values."""

    name: str = column("variable")
    value: str = column("value", least=12)
    set_by: str = column("set by", goes=2)  # `environment`, `config`, `plugin` or `unknown`
    ranks: list[int] = column("ranks", least=8, text=lambda row: "all" if row.everywhere else ranges(row.ranks))
    hosts: list[str]
    everywhere: bool  # every process shows it
    differs: bool  # there are several values of this variable, or only some processes show it
    note: str | None = column("note", goes=3)
    """``outlier`` (far fewer processes have this value than another one), ``differs``, or None where all agree."""
    source: str | None
    line: int | None = column("line", goes=1, text=lambda row: _name_line(row.source, row.line))


def list_settings(job: Job) -> list[SettingRow]:
    """Return a row for each variable and value, by name."""
    sizes = group_values((one.name, (one.value, len(one.processes))) for one in job.environment)
    notes = {name: mark_unusual(dict(values)) for name, values in sizes.items()}
    table = []
    for setting in job.environment:
        first = setting.evidence[0] if setting.evidence else None
        everywhere, unusual = setting.ranks is None, notes[setting.name]
        differs = len(unusual) > 1 or not everywhere
        table.append(
            SettingRow(
                **pick_fields(setting, "name", "value", "hosts"),
                set_by=setting.source,
                ranks=list(job.ranks_seen) if setting.ranks is None else setting.ranks,
                everywhere=everywhere,
                differs=differs,
                note=unusual[setting.value] or ("differs" if differs else None),
                source=getattr(first, "source", None),
                line=getattr(first, "line", None),
            )
        )
    return table


ENV = Answer(
    SettingRow,
    "variable",
    "the log shows no variable; NCCL prints those it uses with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,ENV",
    list_settings,
    is_bad=lambda row: row.note == "outlier",
    places=lambda row: (row.ranks, row.hosts),
)


def mark_unusual(sizes: Mapping[str, int]) -> dict[str, str]:
    """Return what is unusual about each value: ``outlier``, ``differs`` or nothing."""
    if len(sizes) == 1:
        return dict.fromkeys(sizes, "")
    most = max(sizes.values(), default=0)
    return {value: "outlier" if size * 2 < most else "differs" for value, size in sizes.items()}


# Timings


class TimingRow(Frozen):
    """The initialisation of a communicator on one rank; times are seconds."""

    communicator: str = column("communicator", goes=6, folds=True)
    rank: int | None = column("rank")  # global rank; None where the log does not show it
    host: str | None = column("host", goes=9, is_host=True)
    total: float = column("total s")
    slowest: str = column("slowest")  # the phase that took most of it
    bootstrap: float | None = column("bootstrap", goes=7)
    topo: float | None = column("topo", goes=6)
    graphs: float | None = column("graphs", goes=5)
    connections: float | None = column("connections", goes=8)
    kernels: float | None = column("kernels", goes=4)
    alloc: float | None = column("alloc", goes=3)
    allgathers: float | None = column("allgathers", goes=2)
    rest: float | None = column("rest", goes=2)
    source: str
    line: int = column("line", goes=1, text=lambda row: _name_line(row.source, row.line))


def list_timings(job: Job) -> list[TimingRow]:
    """Return a row for each communicator and rank, as far as NCCL says it (2.22 and later), the longest first."""
    table = []
    for comm in job.communicators:
        for timing in comm.timings:
            host, line = timing.process.host, timing.evidence
            table.append(
                TimingRow(
                    communicator=comm.id,
                    rank=comm.ranks[timing.rank] if timing.rank < len(comm.ranks) else None,
                    host=host if is_named(host) else None,
                    total=timing.total,
                    slowest=max(timing.phases, key=timing.phases.__getitem__, default=""),
                    **{name: timing.phases.get(name) for name in PHASES},
                    source=line.source if line else "",
                    line=line.line if line else 0,
                )
            )
    return sorted(table, key=lambda row: -row.total)


TIMINGS = Answer(
    TimingRow,
    "timing",
    "the log has no timings; NCCL 2.22 and later print them with NCCL_DEBUG=INFO",
    list_timings,
    places=_one_place,
    order="rank total slowest bootstrap topo graphs connections kernels alloc allgathers rest host communicator line",
)


# Memory

GPU, HOST = "GPU", "host"
_KINDS = {  # productions with a size, and what is allocated, where the line does not name it in a field
    "nccl/allocation": "",
    "nccl/allocation-timed": "",
    "nccl/cumem-host-allocation": "CUMEM Host Alloc",
    "nccl/reallocation": "Mem Realloc",
    "nccl/shm-allocated": "shared memory",
    "nccl/p2p-buffer-allocated": "P2P buffer",
    "nccl/symmetric-memory-allocated": "symmetric memory",
}
_ON_GPU = ("Persistent cudaMalloc work buf", "Cuda Alloc", "Cuda Calloc", "Cuda CallocAsync", "P2P buffer")


class MemoryRow(Frozen):
    """Holds what a process allocated of one kind for one communicator."""

    rank: int | None = column("rank")  # global rank; None where the process has none, or several
    host: str | None = column("host", goes=8, is_host=True)
    pid: int | None = column("pid", goes=3)
    communicator: str | None = column("communicator", goes=6, folds=True)
    """Address of the communicator that the thread was building; None for what is allocated at other times."""
    memory: str = column("memory")  # `GPU` or `host`
    kind: str = column("kind", goes=9)  # as the line names it: `Cuda Alloc`, `Host Calloc`, …
    bytes: int = column("bytes")
    allocations: int = column("allocations", goes=5)
    largest: int = column("largest", goes=4)


def list_memory(job: Job, placed: Iterable[PlacedEvent]) -> list[MemoryRow]:
    """Return a row for each process, communicator and kind, the largest first; events come in the order of lines."""
    sums: dict[tuple[str | None, int | None, str | None, str], tuple[int, int, int]] = {}
    building: dict[tuple[str | None, int | None, int | None], str] = {}
    for where, event in placed:
        thread = where.host, where.pid, where.tid
        if isinstance(event, events.CommInit):
            if event.phase == "START":
                building[thread] = event.comm
            else:
                building.pop(thread, None)
        elif isinstance(event, events.Message) and event.qualified_name in _KINDS:
            values = dict(event.values)
            if size := int(values.get("size") or 0) - int(values.get("old_size") or 0):
                kind = str(values.get("what") or _KINDS[event.qualified_name])
                key = (where.host, where.pid, building.get(thread), kind)
                total, number, largest = sums.get(key, (0, 0, 0))
                sums[key] = total + size, number + 1, max(largest, size)
    ranks = {(last.process.host, last.process.pid): last.ranks for last in job.last_lines}
    table = []
    for (host, pid, communicator, kind), amounts in sums.items():
        own = ranks.get((host or "", pid or 0), [])
        rank, name = own[0] if len(own) == 1 else None, host if is_named(host) else None
        memory = GPU if kind in _ON_GPU else HOST
        table.append(MemoryRow(rank, name, pid, communicator, memory, kind, *amounts))
    return sorted(table, key=lambda row: -row.bytes)


MEMORY = Answer(
    MemoryRow,
    "row",
    "the log shows no allocation; NCCL prints them with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,ALLOC",
    list_memory,
    places=_one_place,
    order="rank bytes memory kind allocations largest communicator host pid",
)
