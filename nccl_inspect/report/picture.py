"""The drawable parts of a communicator and the look of its links, for drawings and the HTML report.

Hosts with their ranks are joined by links of rings and trees. Each kind of link has a color, a dash pattern and a word,
so that none depends on color alone; the colors are those of Okabe and Ito, which color-blind people can distinguish.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import NamedTuple

from nccl_inspect.model.inventory import Gpu
from nccl_inspect.model.job import CommunicatorInfo, Job, Path
from nccl_inspect.model.paths.path import AlsoPath
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.text import escape_controls
from nccl_inspect.util.wording import STATES, count, ranges

FOLD_ABOVE = 64
"""Ranks above which hosts are drawn instead of ranks."""
UNKNOWN_HOST = "?"


@frozen
class DrawnLink(Frozen):
    """Two neighbors: of a ring (in its direction), of a tree (parent first), or of a connection line."""

    src: int
    dst: int
    kind: str
    """``ring``, ``tree`` or ``connection``."""
    channels: tuple[int, ...]
    detail: str | None = None
    """The path, ``P2P/CUMEM``; None if the log has no connection line for it."""
    transport: str | None = None
    gdr: bool | str | None = None


@frozen
class DrawnShape(Frozen):
    """A ring or a tree, with the channels that have it."""

    channels: tuple[int, ...]
    ranks: tuple[int | None, ...] = ()
    """Of a ring, in its order."""
    links: tuple[tuple[int | None, int | None], ...] = ()
    """Of a tree: (parent, child)."""


@frozen
class View(Frozen):
    """One communicator; without rings and trees in the log, its connections."""

    name: str
    state: str
    nranks: int
    channels: int | None
    parent: str | None
    hosts: dict[str, list[int]]
    """The ranks of each host; those of unknown hosts under ``?``."""
    gpus: dict[int, Gpu] = field(default_factory=dict)
    rings: tuple[DrawnShape, ...] = ()
    trees: tuple[DrawnShape, ...] = ()
    links: tuple[DrawnLink, ...] = ()
    others: tuple[str, ...] = ()
    """Communicators that are not drawn."""
    info: CommunicatorInfo | None = None
    """The communicator; None for connections without one."""

    @property
    def is_folded(self) -> bool:
        """Return whether there are too many ranks to draw each one."""
        return self.nranks > FOLD_ABOVE

    @property
    def kinds(self) -> list[str]:
        """Return the kinds of links, in drawing order."""
        return [kind for kind in ("ring", "tree", "connection") if any(link.kind == kind for link in self.links)]


def make_views(job: Job, wanted: Iterable[str] = (), channels: Iterable[range] = ()) -> list[View]:
    """Return the communicators to draw.

    Args:
        wanted: their names; all when empty. A log without any gives one view of its connections.
        channels: only these; all when empty.
    """
    names = list(wanted)
    ranges = list(channels)
    comms = [comm for comm in job.communicators if not names or comm.id in names]
    if comms:
        links = _Links(job)
        return [_view(job, comm, links, ranges) for comm in comms]
    return [_fragment(job, ranges)] if job.paths and not names else []


class _Links:
    """Lookup tables of a job for its views: paths by ends and by communicator, and the hosts of ranks."""

    def __init__(self, job: Job) -> None:
        self.by_pair = {(path.src, path.dst): path for path in job.paths}
        self.host_of = {rank: host.name for host in job.hosts for rank in host.ranks}
        self.of_communicator: dict[str, list[Path]] = {}
        self._ways: dict[tuple[str, int, int], Path | AlsoPath] = {}
        """The paths between ranks in a communicator."""
        for path in job.paths:
            for rank, host in ((path.src, path.src_host), (path.dst, path.dst_host)):
                if host is not None:
                    self.host_of.setdefault(rank, host)
            for name in path.communicators:
                self.of_communicator.setdefault(name, []).append(path)
            ways: list[Path | AlsoPath] = [path, *path.also]
            for way in ways:
                for name in way.communicators:
                    self._ways.setdefault((name, path.src, path.dst), way)

    def way(self, path: Path, comm: str) -> Path | AlsoPath:
        """Return the path between two ranks in a communicator; that in others if the log lacks it."""
        return self._ways.get((comm, path.src, path.dst), path)

    def hosts(self, ranks: list[int]) -> dict[str, list[int]]:
        """Return the ranks of each host; those of unknown hosts under ``?``."""
        return group_values((self.host_of.get(rank) or UNKNOWN_HOST, rank) for rank in ranks)


def _view(job: Job, comm: CommunicatorInfo, job_links: _Links, ranges: list[range]) -> View:
    rings = _shapes(
        (channel, tuple(ring), ()) for channel, ring in enumerate(comm.rings) if _is_wanted(channel, ranges)
    )
    trees = _shapes(
        (channel, (), tuple((link[0], link[1]) for link in tree))
        for channel, tree in enumerate(comm.trees)
        if _is_wanted(channel, ranges) and tree
    )
    ranks = [rank for rank in comm.ranks if rank is not None]
    links = [*_links("ring", rings, job_links, comm.id), *_links("tree", trees, job_links, comm.id)]
    if not links:
        links = _connections(job_links.of_communicator.get(comm.id, []), ranges, job_links, comm.id)
    return View(
        name=comm.id,
        state=comm.state,
        nranks=comm.nranks,
        channels=comm.channels,
        parent=comm.parent,
        hosts=job_links.hosts(ranks),
        gpus={rank: job.gpus[rank] for rank in ranks if rank in job.gpus},
        rings=rings,
        trees=trees,
        links=tuple(links),
        info=comm,
    )


def _fragment(job: Job, ranges: list[range]) -> View:
    ranks = sorted(job.paths.ends())
    job_links = _Links(job)
    links = tuple(_connections(list(job.paths), ranges, job_links, ""))
    return View(
        "connections", "no communicator in the log", len(ranks), None, None, job_links.hosts(ranks), links=links
    )


def _is_wanted(channel: int, ranges: list[range]) -> bool:
    return not ranges or any(channel in some for some in ranges)


def _shapes(
    per_channel: Iterable[tuple[int, tuple[int | None, ...], tuple[tuple[int | None, int | None], ...]]],
) -> tuple[DrawnShape, ...]:
    """Return rings or trees, once for all channels that share them."""
    by_shape: dict[object, DrawnShape] = {}
    for channel, ranks, links in per_channel:
        shape = by_shape.get((ranks, links))
        by_shape[ranks, links] = DrawnShape((*(shape.channels if shape else ()), channel), ranks, links)
    return tuple(by_shape.values())


def _links(kind: str, shapes: Iterable[DrawnShape], job_links: _Links, comm: str) -> list[DrawnLink]:
    channels: dict[tuple[int, int], set[int]] = {}
    for shape in shapes:
        pairs = shape.links or tuple(zip(shape.ranks, (*shape.ranks[1:], *shape.ranks[:1]), strict=True))
        for src, dst in pairs:
            if src is not None and dst is not None and src != dst:
                channels.setdefault((src, dst), set()).update(shape.channels)
    links = []
    for (src, dst), some in sorted(channels.items()):
        # Trees carry data both ways; either end's line tells the path.
        path = job_links.by_pair.get((src, dst)) or (job_links.by_pair.get((dst, src)) if kind == "tree" else None)
        links.append(_link(src, dst, kind, some, job_links.way(path, comm) if path else None))
    return links


def _connections(paths: list[Path], ranges: list[range], job_links: _Links, comm: str) -> list[DrawnLink]:
    return [
        _link(path.src, path.dst, "connection", some, job_links.way(path, comm))
        for path in paths
        if (some := {channel for channel in path.channels if _is_wanted(channel, ranges)})
    ]


def _link(src: int, dst: int, kind: str, channels: Iterable[int], way: Path | AlsoPath | None) -> DrawnLink:
    return DrawnLink(
        src=src,
        dst=dst,
        kind=kind,
        channels=tuple(sorted(channels)),
        detail=way.detail if way else None,
        transport=way.transport if way else None,
        gdr=way.gdr if way else None,
    )


class Look(NamedTuple):
    """One kind of link."""

    key: str
    words: str
    color: str
    dashes: str
    """In SVG notation; empty for a solid line."""
    dot_style: str


LOOKS = (
    Look("p2p", "P2P: GPU to GPU", "#009E73", "", "solid"),
    Look("gdr", "NET with GPUDirect RDMA", "#0072B2", "12 4", "bold"),
    Look("net", "NET through host memory", "#D55E00", "2 4", "dotted"),
    Look("shm", "SHM: through host memory", "#B8860B", "7 5", "dashed"),
    Look("collnet", "CollNet", "#CC79A7", "12 4 2 4", "bold"),
    Look("unknown", "no connection line in the log", "#777777", "1 6", "dotted"),
)
LOOKS_BY_KEY = {look.key: look for look in LOOKS}


def find_look(link: DrawnLink) -> Look:
    """Return the look of a link."""
    if link.transport == "NET":
        return LOOKS_BY_KEY["gdr" if link.gdr is True else "net"]
    return LOOKS_BY_KEY.get((link.transport or "unknown").lower(), LOOKS_BY_KEY["unknown"])


def channel_words(channels: Sequence[int]) -> str:
    """Return channels in words: ``channel 0``, ``channels 0-3``."""
    return f"channel{'s' if len(channels) > 1 else ''} {ranges(channels)}"


def describe_link(link: DrawnLink) -> str:
    """Return a link in words."""
    way = escape_controls(link.detail or "no connection line") + ("/GDRDMA" if link.gdr is True else "")
    return f"{link.src} -> {link.dst}: {way}, {channel_words(link.channels)}"


def view_title(view: View) -> str:
    """Return the head line of a communicator."""
    hosts = count(len(view.hosts), "host")
    lanes = f", {count(view.channels, 'channel')}" if view.channels else ""
    size = f"{count(view.nranks, 'rank')} on {hosts}{lanes}"
    return f"{escape_controls(view.name)}: {size}, {STATES.get(view.state, view.state)}"


def gpu_words(view: View, rank: int) -> str:
    """Return the GPU of a rank; empty if the log does not name it."""
    gpu = view.gpus.get(rank)
    if gpu is None:
        return ""
    dev = f"GPU {gpu.nvml_dev}" if gpu.nvml_dev is not None else "GPU"
    return f"{dev} busId {escape_controls(gpu.bus_id)}" if gpu.bus_id else dev
