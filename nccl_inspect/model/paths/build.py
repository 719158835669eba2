"""Connection lines to paths: one for each directed pair of global ranks, both ends and all channels joined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.communicators.members import Member
from nccl_inspect.model.connection import AlsoPath
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.fold.process_log import Edge
from nccl_inspect.model.paths import ends as links
from nccl_inspect.model.paths.ends import Line, NicName
from nccl_inspect.model.paths.path import Path
from nccl_inspect.model.paths.placement import Placed
from nccl_inspect.model.paths.scope import Scope
from nccl_inspect.model.paths.table import Paths

_SPEED = {"P2P": 0, "SHM": 1, "NET": 2}
_MAX_CHANNELS = 4096


def build(
    placed: Placed,
    communicators: Sequence[Communicator],
    evidence: Callable[[Edge], Evidence],
    nic_name: NicName,
    nodes_are_hosts: bool,
) -> Paths:
    """The paths, ordered by rank.

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
        grouping = Grouping(rows, (ends[0], ends[1]), nic_name, scope.of)
        return Paths(grouping.columns(lambda lines: _path(lines, scope, nic_name)[0], evidence, hosts))
    scope = Scope(links.devices(placed.lines), placed.hosts, communicators, nodes_are_hosts)
    pairs: dict[tuple[str, int, int], list[Line]] = {}
    for line in placed.lines:
        pairs.setdefault((line.space, line.src, line.dst), []).append(line)
    paths, ways = [], []
    for (space, src, dst), lines in sorted(pairs.items(), key=lambda pair: (pair[0][1:], pair[0][0])):
        path, way = _path(lines, scope, nic_name)
        path.src_host, path.dst_host = placed.hosts.get((space, src)), placed.hosts.get((space, dst))
        path.evidence = [evidence(_first(way).edge)]
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
        return [self.evidence(_first(there).edge)] if there else []


def _first(way: Iterable[Line]) -> Line:
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
    """The path of a pair of ranks by its lines, without hosts and evidence, and those of them that it is read from."""
    way, *others = sorted(_ways(lines), key=_slowness, reverse=True)
    first = _first(way)
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
        scope=scope.of_way(way),
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
        links=links.of(way, nic_name) if event.transport == "NET" else [],
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
    """The global ranks of some members, each once, in order."""
    return sorted({rank for member in members if (rank := global_rank(member)) is not None})
