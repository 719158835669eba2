"""Connection lines to paths: one for each directed pair of global ranks, both ends and all channels joined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import NamedTuple

from nccl_inspect.event import types as events
from nccl_inspect.event.types import Notice as Statement
from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.communicators.members import Member
from nccl_inspect.model.connection import AlsoPath
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.fold.fold import Burst, ProcessLog, Step
from nccl_inspect.model.fold.places import source_and_line
from nccl_inspect.model.job import Notice, PathKind
from nccl_inspect.model.paths import ends as links
from nccl_inspect.model.paths.ends import Line, NicName
from nccl_inspect.model.paths.path import Path
from nccl_inspect.model.paths.placement import Placed
from nccl_inspect.model.paths.table import Paths, refine_kinds
from nccl_inspect.scanning.found import Edge

Pair = tuple[str, str, str]
"""Host and the bus ids of two GPUs."""


def gpu_classes(notices: Iterable[Notice]) -> dict[Pair, str]:
    """Return the class of each pair, where all processes of a host that state it agree."""
    by_pair: dict[Pair, set[str]] = {}
    for notice in notices:
        if notice.production != "nccl/topology-paths" or not isinstance(notice.event, Statement):
            continue
        values = dict(notice.event.values)
        if values["node"] != "GPU":
            continue
        for node, other, _hops, _bandwidth, kind in values["paths"]:
            for host in notice.hosts if node == "GPU" else ():
                by_pair.setdefault((host, _bus_id(values["id"]), _bus_id(other)), set()).add(kind)
    return {pair: kinds.pop() for pair, kinds in by_pair.items() if len(kinds) == 1}


def _bus_id(name: str) -> str:
    """Since 2.21 the number of the system precedes the bus id: 0-60; until 2.20 letters are capitals."""
    return name.rpartition("-")[2].lower()


def name_classes(paths: Paths, classes: Mapping[Pair, str], bus_ids: Mapping[int, str]) -> Paths:
    """Give P2P paths their class; other pairs NCCL reroutes through the CPU, whatever joins them."""
    names: list[str | None] = [None, *dict.fromkeys(classes.values())]
    number = {name: place for place, name in enumerate(names)}

    def class_of(kind: PathKind, hosts: tuple[str | None, str | None], *ends: tuple[int, str | None]) -> str | None:
        if kind.transport != "P2P" or hosts[0] is None or hosts[0] != hosts[1]:
            return None
        first, second = [bus_ids.get(rank, gpu or "").lower() for rank, gpu in ends]
        return classes.get((hosts[0], first, second))

    ways = paths.values(lambda kind: kind, "src_host", "dst_host", "src", "src_gpu", "dst", "dst_gpu")
    marking = [
        number[class_of(kind, (src_host, dst_host), (src, src_gpu), (dst, dst_gpu))]
        for kind, src_host, dst_host, src, src_gpu, dst, dst_gpu in ways
    ]
    return refine_kinds(paths, marking, lambda kind, mark: kind.with_fields(gpu_class=names[mark]))


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
        """Return the ranks on each host."""
        ranks: dict[tuple[str, str], set[int]] = {}
        for (space, rank), name in self._hosts.items():
            ranks.setdefault((space, name), set()).add(rank)
        return ranks

    @cached_property
    def _devices(self) -> dict[tuple[str, str, str], set[int]]:
        """Return the ranks that have a GPU of a host."""
        ranks: dict[tuple[str, str, str], set[int]] = {}
        for space, rank, device in self._named:
            host = self._hosts.get((space, rank))
            if host is not None and device is not None:
                ranks.setdefault((space, host, device), set()).add(rank)
        return ranks

    def agree_on(self, way: Iterable[Line]) -> str:
        """Return what the lines of all communicators state, where they agree."""
        scopes = {self.find_scope(line) for line in {line.communicator: line for line in way}.values()} - {"unknown"}
        return scopes.pop() if len(scopes) == 1 else "unknown"

    def find_scope(self, line: Line) -> str:
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
        """Return whether the ranks that are known to be on a host are as many as NCCL counts there."""
        key = comm.name, space, host
        if key not in self._full:
            sizes = {member.shape.local_ranks for member in self._members(comm).get(host, ()) if member.shape}
            on_host = (
                self._ranks.get((space, host), set()).intersection(comm.global_ranks) if len(sizes) == 1 else set()
            )
            self._full[key] = len(sizes) == 1 and sizes.pop() == len(on_host)
        return self._full[key]

    def _members(self, comm: Communicator) -> dict[str, list[Member]]:
        """Return the members of a communicator by host."""
        if comm.name not in self._by_host:
            by_host = self._by_host[comm.name] = {}
            for member in comm.members.values():
                by_host.setdefault(member.log.process[0], []).append(member)
        return self._by_host[comm.name]


def _has_one_each(comm: Communicator) -> bool:
    """Return whether NCCL counts a node for each rank."""
    return comm.nnodes == comm.nranks


def _names_are_ambiguous(comm: Communicator) -> bool:
    """NCCL counts more nodes than there are host names: names like ``localhost`` do not distinguish hosts."""
    names = {member.log.process[0] for member in comm.members.values()}
    return comm.nnodes is not None and len(comm.members) == comm.nranks and comm.nnodes > len(names)


_SPEED = {"P2P": 0, "SHM": 1, "NET": 2}
_MAX_CHANNELS = 4096


def build(
    placed: Placed,
    communicators: Sequence[Communicator],
    evidence: Callable[[Edge], Evidence],
    nic_name: NicName,
    nodes_are_hosts: bool,
) -> Paths:
    """Return the paths, ordered by rank.

    Args:
        placed: the placed lines.
        communicators: for what NCCL says of nodes.
        evidence: of an edge.
        nic_name: the name of a NIC by process, network and index, where the log lists it.
        nodes_are_hosts: False when shared memory is switched off: then NCCL counts ranks of one host as several nodes.
    """
    if placed.table is not None and len(placed.rows):
        from nccl_inspect.model.paths.grouping import Grouping  # most logs are short

        rows = placed.rows
        scope = Scope(rows.devices(), placed.hosts, communicators, nodes_are_hosts)
        hosts, *ends = rows.hosts(placed.hosts)
        grouping = Grouping(rows, (ends[0], ends[1]), nic_name, scope.find_scope)
        return Paths(grouping.columns(lambda lines: _path(lines, scope, nic_name)[0], evidence, hosts))
    scope = Scope(links.devices(placed.lines), placed.hosts, communicators, nodes_are_hosts)
    pairs: dict[tuple[str, int, int], list[Line]] = {}
    for line in placed.lines:
        pairs.setdefault((line.space, line.src, line.dst), []).append(line)
    paths, ways = [], []
    for (space, src, dst), lines in sorted(pairs.items(), key=lambda pair: (pair[0][1:], pair[0][0])):
        path, way = _path(lines, scope, nic_name)
        path.src_host, path.dst_host = placed.hosts.get((space, src)), placed.hosts.get((space, dst))
        path.evidence = [evidence(_first_line(way).edge)]
        paths.append(path)
        ways.append(way)
    return Paths(paths, _EndLines(ways, evidence))


class _EndLines(NamedTuple):
    """The first lines of the ends of paths; jobs can be pickled with it."""

    ways: list[list[Line]]
    """The lines that each path is read from."""
    evidence: Callable[[Edge], Evidence]

    def __call__(self, row: int, side: str, /) -> list[Evidence]:
        there = [line for line in self.ways[row] if line.event.direction == side]
        return [self.evidence(_first_line(there).edge)] if there else []


def _first_line(way: Iterable[Line]) -> Line:
    return min(way, key=lambda line: line.edge.place)


def _ways(lines: Iterable[Line]) -> Iterator[list[Line]]:
    by_detail: dict[str, list[Line]] = {}
    for line in lines:
        by_detail.setdefault(line.event.detail, []).append(line)
    return iter(by_detail.values())


def _slowness(way: list[Line]) -> tuple[int, bool, bool]:
    event = way[0].event
    return _SPEED.get(event.transport, 3), event.net == "Socket", not all(line.event.gdr for line in way)


def _path(lines: Sequence[Line], scope: Scope, nic_name: NicName) -> tuple[Path, list[Line]]:
    """Return the path of a pair of ranks, without hosts and evidence, and the lines that it is read from."""
    way, *others = sorted(_ways(lines), key=_slowness, reverse=True)
    first = _first_line(way)
    event = first.event
    # The NIC and the proxy of a path are those of its sending end; its links have both ends.
    sender = next((line for line in way if line.event.direction != "receive"), way[0])
    index = sender.event.nic_index
    net = sender.event.net
    path = Path(
        src=first.src,
        dst=first.dst,
        src_host=None,
        dst_host=None,
        scope=scope.agree_on(way),
        transport=event.transport,
        detail=event.detail,
        gdr=_gdr(way),
        nic=nic_name(sender.log, net, index) if net is not None and index is not None else None,
        nic_index=index,
        pxn_rank=sender.pxn_rank,
        shared=any(line.event.shared for line in way),
        channels=_channels(way),
        communicators=list(dict.fromkeys(line.communicator for line in way)),
        also=list(map(_also, others)),
        guessed=all(line.guessed for line in way),
        doubtful=all(line.doubtful for line in way),
        net=net,
        src_gpu=first.src_dev,
        dst_gpu=first.dst_dev,
        links=links.pair_ends(way, nic_name) if event.transport == "NET" else [],
    )
    return path, way


def _gdr(way: list[Line]) -> bool | str | None:
    if way[0].event.transport != "NET":
        return None
    values = {line.event.gdr for line in way}
    return values.pop() if len(values) == 1 else "partial"


def _channels(way: list[Line]) -> list[int]:
    bits = 0
    for line in way:
        bits |= line.edge.channels
    return [channel for channel in range(min(bits.bit_length(), _MAX_CHANNELS)) if bits >> channel & 1]


def _also(way: list[Line]) -> AlsoPath:
    event = way[0].event
    return AlsoPath(
        transport=event.transport,
        detail=event.detail,
        gdr=_gdr(way),
        communicators=list(dict.fromkeys(line.communicator for line in way)),
    )


def ranks_of(members: Iterable[Member], global_rank: Callable[[Member], int | None]) -> list[int]:
    """Return the global ranks of some members, each once, in order."""
    return sorted({rank for member in members if (rank := global_rank(member)) is not None})


_SEND_RECV = 1
"""Connections of send/recv are made on demand, and no line says that they are all there."""


def unfinished_connections(logs: Iterable[ProcessLog], lines: Mapping[int, int]) -> list[Edge]:
    """Return the last connection of each process; nothing where a rank has all of them, or where other lines follow.

    Args:
        logs: of the processes.
        lines: how many each source has, by its number.
    """
    last: list[Edge] = []
    ends: dict[int, int] = {}
    for log in logs:
        source, line = source_and_line(log.last)
        ends[source] = max(line, ends.get(source, 0))
        bursts = [step for step in log.steps if isinstance(step, Burst) and step.key.conn != _SEND_RECV]
        if not bursts:
            continue
        if any(_says_done(step, bursts[0].place) for step in log.steps if isinstance(step, Step)):
            return []
        last.append(max(bursts, key=lambda burst: burst.last).final)
    return last if all(lines[source] == line for source, line in ends.items()) else []


def _says_done(step: Step, begun: int) -> bool:
    """Return whether a step after the first connection says that they are there: until 2.21 COMPLETE follows them."""
    match step.event:
        case events.Connected() | events.CommEnd():
            return True
        case events.CommInit(phase="COMPLETE") | events.ChannelCounts():
            return step.place > begun
    return False
