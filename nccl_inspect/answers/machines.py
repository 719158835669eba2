"""The hosts of a job, their NICs, and the bandwidth that benchmarks measured on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from operator import itemgetter
from typing import Any

from nccl_inspect import bandwidth
from nccl_inspect.answers import Answer, Column, name_line
from nccl_inspect.event import types as events
from nccl_inspect.judging.facts import ENDS
from nccl_inspect.judging.statements import value
from nccl_inspect.model.inventory import LastLine
from nccl_inspect.model.job import Job, Selection
from nccl_inspect.model.paths.build import listed_as
from nccl_inspect.model.versions import cuda
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.records import Frozen, Record, pick_fields
from nccl_inspect.util.times import are_in_order, moment


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


USED, IDLE, UNKNOWN = "used", "idle", "unknown"
_SPEEDS = {"nccl/nic-speed": "interface", "nccl/ib-device": "name"}
"""Productions with a speed in Mb/s, and the field that names the NIC."""
_BUILT_IN = ("IB", "Socket")
_VIRTUAL = 2  # parts that a list has for a virtual NIC: index and name, no port or address
_LAST = 1 << 30
_ONE_EACH = "SENDRECV"
"""The protocol of aws-ofi-nccl in which each NIC that it finds is a device; RDMA joins several to one."""


class NicRow(Frozen):
    """A NIC of a host."""

    host: str
    nic: str | None  # its name; None where the log has its index only
    nic_index: int | None
    network: str  # `IB`, `Socket`, `AWS Libfabric`, …
    state: str
    """``used``, ``idle`` (listed, and no connection line uses it while others of the host are used), or ``unknown``
    (the log has no network connection of this host, or is an excerpt)."""
    gpus: list[int]  # NVML numbers of the GPUs whose ranks use it
    ranks: list[int]  # ranks that send or receive through it
    send_ranks: list[int]
    receive_ranks: list[int]
    pxn_ranks: list[int]  # ranks of other GPUs whose data leaves through it (PXN)
    paths_out: int
    paths_in: int
    gdr: bool | str | None  # GPUDirect RDMA: True, False, `partial` (on some paths only), None where nothing uses it
    link: str | None  # `IB` or `RoCE`
    speed_mbps: int | None  # as in the log (subsystem NET)

    @property
    def name(self) -> str:
        """Return its name for people."""
        return self.nic or f"index {self.nic_index}"


_NIC_COLUMNS = (
    Column("host", "host", is_host=True, folds=True),
    Column("name", "NIC"),
    Column("state", "state"),
    Column("gpus", "GPUs", goes=4),
    Column("send_ranks", "sends", least=10),
    Column("receive_ranks", "receives", least=10),
    Column("pxn_ranks", "PXN for", goes=3, least=10),
    Column("gdr", "GDR", goes=9),
    Column("network", "network", goes=5, folds=True),
    Column("link", "link", goes=1, folds=True),
    Column("speed_mbps", "Mb/s", goes=6, folds=True),
    Column("paths_out", "paths out", goes=2),
    Column("paths_in", "paths in", goes=2),
)


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
    networks = {host: network for host, network in busy if network not in _BUILT_IN}
    for notice in job.notices:
        if not isinstance(notice.event, events.OfiProvider):
            continue
        for host in notice.hosts if single.issuperset(notice.hosts) else ():
            for index in range(notice.event.nics or 0) if host in networks else ():
                nics.setdefault((host, networks[host], str(index)), _Nic(None, index))


_WEIGHTS = {"error": 3, "warning": 2, "info": 1}


class HostRow(Frozen):
    """A host."""

    host: str
    severity: str | None  # the highest severity of the findings that name it; None without one
    paths_ok: int  # paths that begin or end there and are as good as expected
    paths_fallback: int
    paths_unknown: int
    findings: list[str]  # rules whose findings name the host or one of its ranks, worst first
    ranks: list[int]
    gpus: int  # number of distinct GPUs in the log
    nics_used: list[str]
    nics_idle: list[str]  # NICs that NCCL lists and no connection line uses, although other NICs of the host are used
    nccl_versions: list[str]
    cuda_versions: list[str]  # CUDA level of the driver
    last_time: str | None  # of its last line, as the line has it
    last_source: str | None
    last_line: int | None


_HOST_COLUMNS = (
    Column("host", "host", is_host=True),
    Column("severity", "worst", goes=10),
    Column("paths_ok", "ok"),
    Column("paths_fallback", "fallback"),
    Column("paths_unknown", "unknown", goes=9),
    Column("findings", "findings", goes=8, least=16),
    Column("ranks", "ranks", goes=7, least=8),
    Column("gpus", "GPUs", goes=3),
    Column("nics_used", "NICs", goes=4, text=lambda row: str(len(row.nics_used)) if row.nics_used else "-"),
    Column("nics_idle", "idle NICs", goes=6, least=8),
    Column("nccl_versions", "NCCL", goes=2, folds=True),
    Column("cuda_versions", "driver", goes=1, folds=True),
    Column("last_time", "last time", goes=3),
    Column("last_line", "last line", goes=5, text=lambda row: name_line(row.last_source, row.last_line)),
)


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


class BandwidthRow(Frozen):
    """An operation at one size; bandwidths are bus bandwidths in GB/s."""

    operation: str
    type: str
    ranks: int | None
    nodes: int | None
    size: int
    measured_gbps: float
    lower_gbps: float  # the other of out-of-place and in-place
    expected_low: float | None
    expected_high: float | None
    ratio: float | None  # of the least that is expected of large messages
    verdict: str  # `ok`, `low` or `unknown`; of a size `dip`, where smaller messages get far more, else nothing
    what: str  # the hardware that is expected to give that, or why it is not judged
    tool: str
    line: str
    hosts: list[str]


def _describe_expected(row: BandwidthRow) -> str:
    rates = (row.expected_low, row.expected_high)
    return "" if None in rates else "-".join(bandwidth.rate_text(rate or 0) for rate in rates)


_BANDWIDTH_COLUMNS = (
    Column("operation", "operation", folds=True),
    Column("ranks", "ranks", folds=True),
    Column("nodes", "nodes", goes=4, folds=True),
    Column("type", "type", goes=2, folds=True),
    Column("size", "size", text=lambda row: bandwidth.size_text(row.size) if row.size else "pairs"),
    Column("measured_gbps", "GB/s", text=lambda row: bandwidth.rate_text(row.measured_gbps)),
    Column("expected_low", "expected", text=_describe_expected),
    Column("ratio", "of least", goes=5, text=lambda row: bandwidth.percent_text(row.ratio)),
    Column("verdict", "verdict"),
    Column("what", "what is expected, or why not judged", goes=6, folds=True),
    Column("tool", "tool", goes=1, folds=True),
    Column("line", "line", goes=3),
)


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
                    line=name_line(line.source, line.line) if line else "",
                )
            )
    return table


_OF_ENTRY = ("operation", "type", "ranks", "nodes", "expected_low", "expected_high", "tool", "hosts")


NICS = Answer(NicRow, _NIC_COLUMNS, list_nics, lambda row: row.state == IDLE)
HOSTS = Answer(HostRow, _HOST_COLUMNS, list_hosts, lambda row: row.severity == "error" or row.paths_fallback > 0)
BANDWIDTH = Answer(BandwidthRow, _BANDWIDTH_COLUMNS, list_bandwidths, lambda row: row.verdict in ("low", "dip"))
