"""Connection lines to paths: one for each directed pair of global ranks, both ends and all channels joined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from operator import attrgetter
from typing import NamedTuple

from nccl_inspect.event import types as events
from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.event.types import Notice as Statement
from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.communicators.members import SEND_RECV
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.fold.process_log import Burst, ProcessLog, source_and_line
from nccl_inspect.model.job import Notice
from nccl_inspect.model.paths.ends import NicName, NicNames, pair_ends
from nccl_inspect.model.paths.path import AlsoPath, PathKind
from nccl_inspect.model.paths.placement import Line, Placed
from nccl_inspect.model.paths.table import Paths, Table, refine_kinds
from nccl_inspect.scanning.found import Edge
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.records import values

Pair = tuple[str, str, str]  # host and the bus ids of two GPUs


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

    def class_of(kind: PathKind, hosts: tuple[str | None, str | None], *ends: tuple[int, str | None]) -> str | None:
        if kind.transport != "P2P" or hosts[0] is None or hosts[0] != hosts[1]:
            return None
        first, second = [bus_ids.get(rank, gpu or "").lower() for rank, gpu in ends]
        return classes.get((hosts[0], first, second))

    ways = paths.values("kind", "src_host", "dst_host", "src", "src_gpu", "dst", "dst_gpu")
    marking = [
        class_of(kind, (src_host, dst_host), (src, src_gpu), (dst, dst_gpu))
        for kind, src_host, dst_host, src, src_gpu, dst, dst_gpu in ways
    ]
    return refine_kinds(paths, marking, lambda kind, name: kind.with_fields(gpu_class=name))


class Scope:
    """Decides whether two ranks are on one host.

    Args:
        nodes_are_hosts: False when shared memory is switched off: then NCCL counts ranks of one host as several nodes.
    """

    def __init__(self, placed: Placed, communicators: Sequence[Communicator], nodes_are_hosts: bool) -> None:
        self._nodes_are_hosts = nodes_are_hosts
        self._pairs, self._hosts = placed.pairs, placed.hosts
        self._by_name = {comm.name: comm for comm in communicators}
        self._are_ambiguous = cache(_names_are_ambiguous)
        self._is_full = cache(self._count_all)
        self._members = cache(
            lambda name: group_values(
                (member.log.process[0], member) for member in self._by_name[name].members.values()
            )
        )

    @cached_property
    def _ranks(self) -> dict[tuple[str, str], set[int]]:
        """Return the ranks on each host."""
        return group_sets(((space, name), rank) for (space, rank), name in self._hosts.items())

    @cached_property
    def _devices(self) -> dict[tuple[str, str, str], set[int]]:
        """Return the ranks that have a GPU of a host."""
        return group_sets(
            ((space, host, device), rank)
            for (src, dst, space), lines in self._pairs.items()
            for line in lines
            for rank, device in ((src, line.event.src_dev), (dst, line.event.dst_dev))
            if device is not None and (host := self._hosts.get((space, rank))) is not None
        )

    def agree_on(self, way: Iterable[Line]) -> str:
        """Return what the lines of all communicators state, where they agree."""
        scopes = {self.find_scope(line) for line in {line.communicator: line for line in way}.values()} - {"unknown"}
        return scopes.pop() if len(scopes) == 1 else "unknown"

    def find_scope(self, line: Line) -> str:
        """Return ``intra``, ``inter`` or ``unknown``."""
        if line.event.is_local:
            return "intra"
        space = line.placement.space
        src_host, dst_host = self._hosts.get((space, line.src)), self._hosts.get((space, line.dst))
        comm = self._by_name.get(line.communicator)
        if src_host is not None and dst_host is not None:
            if src_host != dst_host:
                return "inter"
            return "unknown" if comm and self._nodes_are_hosts and self._are_ambiguous(comm) else "intra"
        seen = src_host if src_host is not None else dst_host
        if seen is None:
            return "unknown"
        if comm and self._is_full(comm.name, space, seen):
            return "inter"
        # NCCL refuses two ranks on one GPU, so a device that a rank of that host has is another host's.
        unseen, device = (line.dst, line.event.dst_dev) if dst_host is None else (line.src, line.event.src_dev)
        return "inter" if self._devices.get((space, seen, device or ""), set()) - {unseen} else "unknown"

    def _count_all(self, name: str, space: str, host: str) -> bool:
        """Return whether the ranks that are known to be on a host are as many as NCCL counts there."""
        sizes = {member.shape.local_ranks for member in self._members(name).get(host, ()) if member.shape}
        on_host = self._ranks.get((space, host), set()).intersection(self._by_name[name].global_ranks)
        return sizes == {len(on_host)}


def _names_are_ambiguous(comm: Communicator) -> bool:
    """NCCL counts more nodes than there are host names: names like ``localhost`` do not distinguish hosts."""
    names = {member.log.process[0] for member in comm.members.values()}
    return comm.nnodes is not None and len(comm.members) == comm.nranks and comm.nnodes > len(names)


_PLACE = attrgetter("place")
_SPEED = {"P2P": 0, "SHM": 1, "NET": 2}
_MAX_CHANNELS = 4096


def build(
    placed: Placed,
    communicators: Sequence[Communicator],
    evidence: Callable[[Edge], Evidence],
    nics: NicNames,
    nodes_are_hosts: bool,
) -> Paths:
    """Return the paths, ordered by rank.

    A job of a thousand ranks has tens of thousands of paths of a few hundred kinds: what lines mean is found out once
    for all pairs of ranks whose lines say the same.

    Args:
        nodes_are_hosts: False when shared memory is switched off: then NCCL counts ranks of one host as several nodes.
    """
    scope = Scope(placed, communicators, nodes_are_hosts)
    wordings = _Wordings(scope, nics)
    kinds: dict[object, tuple[PathKind, bool]] = {}
    """By what lines say: the kind of path, and whether all of the lines are of it."""
    alike: dict[object, PathKind] = {}
    named: dict[tuple[str, ...], tuple[str, ...]] = {}
    """The communicators of paths: the same object for all that have the same."""
    rows, ways = [], []
    for pair in sorted(placed.pairs):
        src, dst, space = pair
        lines = placed.pairs[pair]
        hosts = placed.hosts.get((space, src)), placed.hosts.get((space, dst))
        wording = wordings.find_wording(lines, hosts)
        if wording not in kinds:
            kind = _kind(lines, scope, nics.find_name)
            is_whole = all(line.edge.event.detail == kind.detail for line in lines)
            kinds[wording] = alike.setdefault(values(kind), kind), is_whole
        kind, is_whole = kinds[wording]
        way = lines if is_whole else [line for line in lines if line.edge.event.detail == kind.detail]
        edges = tuple([line.edge for line in way])
        first = _find_first(edges).event
        names = tuple(dict.fromkeys([line.placement.communicator for line in way]))
        rows.append((src, dst, *hosts, first.src_dev, first.dst_dev, named.setdefault(names, names), kind))
        ways.append(edges)
    placed.pairs.clear()  # paths keep the edges only, and what is judged needs the room
    quotes = _Quotes(ways, evidence)
    return Paths(Table(rows, quotes.list_first, quotes.list_first_of_end))


class _Wordings:
    """Finds out what lines say of a path: the same of pairs of ranks whose paths are of one kind."""

    def __init__(self, scope: Scope, nics: NicNames) -> None:
        self._scope, self._nics = scope, nics
        self._numbers: dict[object, int] = {}  # by what events say of paths
        self._events: dict[int, tuple[int, bool, str]] = {}
        """By the id of an event the number of what it says, whether both ranks are on one host, and its detail."""

    def find_wording(self, lines: Sequence[Line], hosts: tuple[str | None, str | None]) -> object:
        """Return what the lines of a pair of ranks say, of which the hosts are known or None."""
        is_between = hosts[0] != hosts[1] and None not in hosts
        wordings: list[object] = []
        details = set()
        for line in lines:
            _, _, edge, placement, guessed, doubtful = line
            event = edge.event
            number, is_local, detail = self._events.get(id(event)) or self._read(event)
            details.add(detail)
            if is_local:
                wordings.append((number, edge.channels, guessed, doubtful))
            else:
                nics = self._nics.number(placement.log)
                proxy = None if event.pxn_rank is None else line.pxn_rank
                scope = "inter" if is_between else self._scope.find_scope(line)
                wordings.append((number, edge.channels, guessed, doubtful, nics, proxy, scope))
        if len(lines) == 1:
            return wordings[0]
        # Which communicators they are of matters where several ways are named with theirs; else that they are several.
        names = [line.placement.communicator for line in lines]
        return *wordings, *(map(names.index, names) if len(details) == 1 else names)

    def _read(self, event: ChannelConnect) -> tuple[int, bool, str]:
        number = self._numbers.setdefault(_SAID(event), len(self._numbers))
        read = self._events[id(event)] = number, event.is_local, event.detail
        return read


_SAID = attrgetter("detail", "transport", "net", "nic_index", "conn", "direction", "is_local", "gdr", "shared")
"""What of an event matters for the kind of a path."""


class _Quotes(NamedTuple):
    """Quotes the first lines of paths and of their ends; jobs can be pickled with it."""

    ways: list[tuple[Edge, ...]]  # the lines that each path is read from
    evidence: Callable[[Edge], Evidence]

    def list_first(self, row: int) -> list[Evidence]:
        """Return the first line of a path, in a list."""
        return [self.evidence(_find_first(self.ways[row]))]

    def list_first_of_end(self, row: int, side: str) -> list[Evidence]:
        """Return the first line that an end of a path prints, in a list; empty if none is known."""
        there = [edge for edge in self.ways[row] if edge.event.direction == side]
        return [self.evidence(_find_first(there))] if there else []


def _find_first(edges: Sequence[Edge]) -> Edge:
    return edges[0] if len(edges) == 1 else min(edges, key=_PLACE)


def _slowness(way: list[Line]) -> tuple[int, bool, bool]:
    event = way[0].event
    return _SPEED.get(event.transport, 3), event.net == "Socket", not all(line.event.gdr for line in way)


def _kind(lines: Iterable[Line], scope: Scope, nic_name: NicName) -> PathKind:
    """Return the kind of the path of a pair of ranks: that of the slowest way, if there are several."""
    ways = group_values((line.event.detail, line) for line in lines)
    way, *others = sorted(ways.values(), key=_slowness, reverse=True)
    event = _find_first([line.edge for line in way]).event
    # The NIC and the proxy of a path are those of its sending end; its links have both ends.
    sender = next((line for line in way if line.event.direction != "receive"), way[0])
    index, net = sender.event.nic_index, sender.event.net
    channels = 0
    for line in way:
        channels |= line.edge.channels
    return PathKind(
        scope=scope.agree_on(way),
        transport=event.transport,
        detail=event.detail,
        gdr=_gdr(way),
        nic=nic_name(sender.placement.log, net, index) if net is not None and index is not None else None,
        nic_index=index,
        pxn_rank=sender.pxn_rank,
        shared=any(line.event.shared for line in way),
        guessed=all(line.guessed for line in way),
        doubtful=all(line.doubtful for line in way),
        net=net,
        channels=tuple(
            channel for channel in range(min(channels.bit_length(), _MAX_CHANNELS)) if channels >> channel & 1
        ),
        also=tuple(
            AlsoPath(
                transport=other[0].event.transport,
                detail=other[0].event.detail,
                gdr=_gdr(other),
                communicators=tuple(dict.fromkeys(line.communicator for line in other)),
            )
            for other in others
        ),
        links=tuple(pair_ends(way, nic_name)) if event.transport == "NET" else (),
    )


def _gdr(way: list[Line]) -> bool | str | None:
    if way[0].event.transport != "NET":
        return None
    values = {line.event.gdr for line in way}
    return values.pop() if len(values) == 1 else "partial"


def unfinished_connections(logs: Iterable[ProcessLog], lines: Mapping[int, int]) -> list[Edge]:
    """Return the last connection of each process; nothing where a rank has all of them, or where other lines follow.

    Those of send/recv do not count: they are made on demand, and no line says that they are all there.

    Args:
        lines: how many each source has, by its number.
    """
    last: list[Edge] = []
    ends: dict[int, int] = {}
    for log in logs:
        source, line = source_and_line(log.last)
        ends[source] = max(line, ends.get(source, 0))
        bursts = [step for step in log.steps if isinstance(step, Burst) and step.key.conn != SEND_RECV]
        if not bursts:
            continue
        for step in log.steps:
            match step.event:
                case events.Connected() | events.CommEnd():
                    return []
                case events.CommInit(phase="COMPLETE") | events.ChannelCounts() if step.place > bursts[0].place:
                    return []  # until 2.21 these follow the connections
        last.append(max(bursts, key=lambda burst: burst.last).final)
    return last if all(lines[source] == line for source, line in ends.items()) else []
