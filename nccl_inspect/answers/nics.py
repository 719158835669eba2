"""The NICs of the hosts, and the ranks and GPUs that send and receive through them; also idle ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import field

from nccl_inspect.answers import Column
from nccl_inspect.event import types as events
from nccl_inspect.judging.facts import ENDS
from nccl_inspect.judging.statements import value
from nccl_inspect.model.connection import End
from nccl_inspect.model.job import Job, Selection
from nccl_inspect.model.paths.ends import listed_as
from nccl_inspect.util.records import Frozen, Record, frozen, record

USED, IDLE, UNKNOWN = "used", "idle", "unknown"
_SPEEDS = {"nccl/nic-speed": "interface", "nccl/ib-device": "name"}
"""Productions with a speed in Mb/s, and the field that names the NIC."""
_BUILT_IN = ("IB", "Socket")
_VIRTUAL = 2
"""Parts that a list has for a virtual NIC: index and name, no port or address."""
_LAST = 1 << 30
_ONE_EACH = "SENDRECV"
"""The protocol of aws-ofi-nccl in which each NIC that it finds is a device; RDMA joins several to one."""


@frozen
class NicRow(Frozen):
    """A NIC of a host."""

    host: str
    nic: str | None
    """Its name; None where the log has its index only."""
    nic_index: int | None
    network: str
    """``IB``, ``Socket``, ``AWS Libfabric``, …"""
    state: str
    """``used``, ``idle`` (listed, and no connection line uses it while others of the host are used), or ``unknown``
    (the log has no network connection of this host, or is an excerpt)."""
    gpus: list[int]
    """NVML numbers of the GPUs whose ranks use it."""
    ranks: list[int]
    """Ranks that send or receive through it."""
    send_ranks: list[int]
    receive_ranks: list[int]
    pxn_ranks: list[int]
    """Ranks of other GPUs whose data leaves through it (PXN)."""
    paths_out: int
    paths_in: int
    gdr: bool | str | None
    """GPUDirect RDMA: True, False, ``partial`` (on some paths only), None where nothing uses it."""
    link: str | None
    """``IB`` or ``RoCE``."""
    speed_mbps: int | None
    """As in the log (subsystem NET)."""


def name(row: NicRow) -> str:
    """The name of a NIC for people."""
    return row.nic or f"index {row.nic_index}"


RECORD = NicRow
COLUMNS = (
    Column("host", "host", is_host=True, folds=True),
    Column("nic", "NIC", text=name),
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


@record
class _Nic(Record):
    """A NIC while what uses it is gathered."""

    name: str | None
    index: int | None
    link: str | None = None
    sends: set[int] = field(default_factory=set)
    receives: set[int] = field(default_factory=set)
    pxn: set[int] = field(default_factory=set)
    paths_out: int = 0
    paths_in: int = 0
    gdr: set[bool] = field(default_factory=set)

    def take(self, end: End, side: str, rank: int) -> None:
        """Take in one end of a path; what leaves by the NIC of another rank (PXN) is that rank's use."""
        self.gdr.add(end.gdr)
        if end.pxn_rank is not None:
            self.pxn.add(rank)
        users = self.sends if side == "send" else self.receives
        users.add(rank if end.pxn_rank is None else end.pxn_rank)


_Key = tuple[str, str, str]
"""Host, network, and name or index."""


def is_bad(row: NicRow) -> bool:
    """Whether nothing uses it."""
    return row.state == IDLE


def rows(job: Job) -> list[NicRow]:
    """One for each NIC: hosts with idle ones first, each host's NICs by index."""
    listed = _listed(job)
    nics = _used(job.paths, {(host, net, index): name for (host, net, name), (index, _) in listed.items()})
    busy = {(host, network) for host, network, _ in nics}
    _add_listed(nics, listed, busy)
    _add_counted(nics, job, busy)
    speeds = _speeds(job)
    # In an excerpt, the lines that use a NIC may be missing.
    hosts_in_use = set() if job.excerpt else {host for host, _ in busy}
    places = {host.name: place for place, host in enumerate(job.hosts)}
    entries = [_row(key, nic, job, hosts_in_use, speeds) for key, nic in nics.items()]
    idle = {row.host for row in entries if row.state == IDLE}
    return sorted(
        entries,
        key=lambda row: (
            row.host not in idle,
            places.get(row.host, len(places)),
            row.network,
            _LAST if row.nic_index is None else row.nic_index,
            row.nic or "",
        ),
    )


def _row(key: _Key, nic: _Nic, job: Job, hosts_in_use: set[str], speeds: dict[tuple[str, str], int]) -> NicRow:
    host, network, _ = key
    ranks = nic.sends | nic.receives
    gpus = {gpu.nvml_dev for rank in ranks if (gpu := job.gpus.get(rank)) and gpu.nvml_dev is not None}
    return NicRow(
        host=host,
        nic=nic.name,
        nic_index=nic.index,
        network=network,
        state=USED if ranks else IDLE if host in hosts_in_use else UNKNOWN,
        gpus=sorted(gpus),
        ranks=sorted(ranks),
        send_ranks=sorted(nic.sends),
        receive_ranks=sorted(nic.receives),
        pxn_ranks=sorted(nic.pxn),
        paths_out=nic.paths_out,
        paths_in=nic.paths_in,
        gdr="partial" if len(nic.gdr) > 1 else next(iter(nic.gdr), None),
        link=nic.link,
        speed_mbps=speeds.get((host, nic.name or "")),
    )


def _used(paths: Selection, names: Mapping[tuple[str, str, int], str]) -> dict[_Key, _Nic]:
    """The NICs at the ends of network paths."""
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
                nic.take(end, side, rank)
            for nic in touched.values():
                nic.paths_out += number * (side == "send")
                nic.paths_in += number * (side == "receive")
    return nics


def _listed(job: Job) -> dict[_Key, tuple[int, str | None]]:
    """The NICs that networks list when they start, with index and kind of link."""
    nics: dict[_Key, tuple[int, str | None]] = {}
    for notice in job.notices:
        if not isinstance(notice.event, events.NetDevices):
            continue
        for index, name, _, *link in (device for device in notice.event.devices if len(device) > _VIRTUAL):
            for host in notice.hosts:
                nics.setdefault((host, notice.event.net, str(name)), (int(index), link[0] if link else None))
    return nics


def _add_listed(
    nics: dict[_Key, _Nic], listed: Mapping[_Key, tuple[int, str | None]], busy: AbstractSet[tuple[str, str]]
) -> None:
    """Add listed NICs that nothing uses, except ports that NCCL merged into a virtual NIC.

    TCP interfaces count if something uses TCP, or if no use is known at all.
    """
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


def _speeds(job: Job) -> dict[tuple[str, str], int]:
    """Speeds by host and name."""
    return {
        (host, str(value(notice, _SPEEDS[notice.production]))): int(value(notice, "speed"))
        for notice in job.notices
        if notice.production in _SPEEDS
        for host in notice.hosts
    }
