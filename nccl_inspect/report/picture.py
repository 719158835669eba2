"""The drawable parts of a communicator and the look of its links, for drawings and the HTML report.

Hosts with their ranks are joined by links of rings and trees. Each kind of link has a color, a dash pattern and a word,
so that none depends on color alone; the colors are those of Okabe and Ito, which color-blind people can distinguish.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import NamedTuple

from nccl_inspect.model.inventory import Gpu
from nccl_inspect.model.job import CommunicatorInfo, Job, Path, PathKind
from nccl_inspect.model.paths.path import AlsoPath
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import Frozen, pick_fields
from nccl_inspect.util.text import escape_controls
from nccl_inspect.util.wording import STATES, count, ranges

FOLD_ABOVE = 64  # ranks above which hosts are drawn instead of ranks
UNKNOWN_HOST = "?"
NO_LINE = "no connection line"


class DrawnLink(Frozen):
    """Two neighbors: of a ring (in its direction), of a tree (parent first), or of a connection line."""

    src: int
    dst: int
    kind: str  # `ring`, `tree` or `connection`
    channels: tuple[int, ...]
    detail: str | None = None  # the path, `P2P/CUMEM`; None if the log has no connection line for it
    transport: str | None = None
    gdr: bool | str | None = None

    @property
    def way(self) -> str:
        """Return its path in words."""
        return escape_controls(self.detail or NO_LINE) + ("/GDRDMA" if self.gdr is True else "")


class DrawnShape(Frozen):
    """A ring or a tree, with the channels that have it."""

    channels: tuple[int, ...]
    ranks: tuple[int | None, ...] = ()  # of a ring, in its order
    links: tuple[tuple[int | None, int | None], ...] = ()  # of a tree: (parent, child)


class View(Frozen):
    """One communicator; without rings and trees in the log, its connections."""

    comm: CommunicatorInfo
    hosts: dict[str, list[int]]  # the ranks of each host; those of unknown hosts under `?`
    gpus: dict[int, Gpu] = field(default_factory=dict)
    rings: tuple[DrawnShape, ...] = ()
    trees: tuple[DrawnShape, ...] = ()
    links: tuple[DrawnLink, ...] = ()
    others: tuple[str, ...] = ()  # communicators that are not drawn

    @property
    def is_folded(self) -> bool:
        """Return whether there are too many ranks to draw each one."""
        return self.comm.nranks > FOLD_ABOVE

    @property
    def kinds(self) -> list[str]:
        """Return the kinds of links, in drawing order."""
        return [kind for kind in ("ring", "tree", "connection") if any(link.kind == kind for link in self.links)]


def make_views(job: Job, wanted: Iterable[str] = (), channels: Iterable[range] = ()) -> list[View]:
    """Return the communicators to draw, all or some; a log without any gives a view of its connections."""
    names, paths = list(wanted), _Paths(job, list(channels))
    comms = [comm for comm in job.communicators if not names or comm.id in names]
    if comms or names or not job.paths:
        return [paths.view(job, comm) for comm in comms]
    ranks = sorted(job.paths.ends())
    unknown = CommunicatorInfo("connections", None, len(ranks), [], [], None, [], [], "no communicator in the log")
    return [View(unknown, paths.hosts(ranks), links=paths.connections(job.paths))]


class _Paths:
    """The paths of a job by ends and by communicator, the hosts of ranks, and the channels that are wanted."""

    def __init__(self, job: Job, channels: list[range]) -> None:
        self._channels = channels
        self._by_pair = {(path.src, path.dst): path for path in job.paths}
        self._host_of = {rank: host.name for host in job.hosts for rank in host.ranks}
        self._of_communicator = group_values((name, path) for path in job.paths for name in path.communicators)
        self._ways: dict[tuple[str, int, int], Path | AlsoPath] = {}  # the paths between ranks in a communicator
        for path in job.paths:
            for rank, host in ((path.src, path.src_host), (path.dst, path.dst_host)):
                if host is not None:
                    self._host_of.setdefault(rank, host)
            ways: list[Path | AlsoPath] = [path, *path.also]
            for way in ways:
                for name in way.communicators:
                    self._ways.setdefault((name, path.src, path.dst), way)

    def hosts(self, ranks: Iterable[int]) -> dict[str, list[int]]:
        """Return the ranks of each host; those of unknown hosts under ``?``."""
        return group_values((self._host_of.get(rank) or UNKNOWN_HOST, rank) for rank in ranks)

    def view(self, job: Job, comm: CommunicatorInfo) -> View:
        """Return a communicator: rings and trees, once for all channels that share them, or its connections."""
        orders = group_values((tuple(ring), at) for at, ring in enumerate(comm.rings) if self._has(at))
        joined = (
            (tuple((link[0], link[1]) for link in tree), at)
            for at, tree in enumerate(comm.trees)
            if self._has(at) and tree
        )
        rings = tuple(DrawnShape(tuple(channels), order) for order, channels in orders.items())
        trees = tuple(DrawnShape(tuple(channels), links=links) for links, channels in group_values(joined).items())
        ranks = [rank for rank in comm.ranks if rank is not None]
        gpus = {rank: job.gpus[rank] for rank in ranks if rank in job.gpus}
        links = self._links(comm.id, rings, trees)
        links = links or self.connections(self._of_communicator.get(comm.id, ()), comm.id)
        return View(comm, self.hosts(ranks), gpus, rings, trees, links)

    def _links(self, comm: str, rings: Iterable[DrawnShape], trees: Iterable[DrawnShape]) -> tuple[DrawnLink, ...]:
        turns = (("ring", zip(ring.ranks, (*ring.ranks[1:], *ring.ranks[:1]), strict=True), ring) for ring in rings)
        branches = (("tree", tree.links, tree) for tree in trees)
        channels: dict[tuple[str, int, int], set[int]] = {}
        for kind, pairs, shape in (*turns, *branches):
            for src, dst in pairs:
                if src is not None and dst is not None and src != dst:
                    channels.setdefault((kind, src, dst), set()).update(shape.channels)
        links = []
        for (kind, src, dst), some in sorted(channels.items()):
            # Trees carry data both ways; either end's line tells the path.
            path = self._by_pair.get((src, dst)) or (self._by_pair.get((dst, src)) if kind == "tree" else None)
            links.append(self._link(src, dst, kind, some, path, comm))
        return tuple(links)

    def connections(self, paths: Iterable[Path], comm: str = "") -> tuple[DrawnLink, ...]:
        """Return connection lines, those of the wanted channels."""
        lines = ((path, set(filter(self._has, path.channels))) for path in paths)
        return tuple(self._link(path.src, path.dst, "connection", some, path, comm) for path, some in lines if some)

    def _has(self, channel: int) -> bool:
        return not self._channels or any(channel in some for some in self._channels)

    def _link(self, src: int, dst: int, kind: str, channels: set[int], path: Path | None, comm: str) -> DrawnLink:
        # That in others if the log lacks it.
        way = self._ways.get((comm, path.src, path.dst), path) if path else None
        known = pick_fields(way, "detail", "transport", "gdr") if way else {}
        return DrawnLink(src, dst, kind, tuple(sorted(channels)), **known)


class Look(NamedTuple):
    """One kind of link."""

    key: str
    words: str
    color: str
    dashes: str  # in SVG notation; empty for a solid line
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


def find_look(link: DrawnLink | PathKind) -> Look:
    """Return the look of a link, or of a kind of path."""
    if link.transport == "NET":
        return LOOKS_BY_KEY["gdr" if link.gdr is True else "net"]
    return LOOKS_BY_KEY.get((link.transport or "unknown").lower(), LOOKS_BY_KEY["unknown"])


def channel_words(channels: Sequence[int]) -> str:
    """Return channels in words: ``channel 0``, ``channels 0-3``."""
    return f"channel{'s' if len(channels) > 1 else ''} {ranges(channels)}"


def describe_link(link: DrawnLink) -> str:
    """Return a link in words."""
    return f"{link.src} -> {link.dst}: {link.way}, {channel_words(link.channels)}"


def view_title(view: View) -> str:
    """Return the head line of a communicator."""
    hosts = count(len(view.hosts), "host")
    lanes = f", {count(view.comm.channels, 'channel')}" if view.comm.channels else ""
    size = f"{count(view.comm.nranks, 'rank')} on {hosts}{lanes}"
    return f"{escape_controls(view.comm.id)}: {size}, {STATES.get(view.comm.state, view.comm.state)}"


def gpu_words(view: View, rank: int) -> str:
    """Return the GPU of a rank; empty if the log does not name it."""
    gpu = view.gpus.get(rank)
    dev = "" if gpu is None else "GPU" if gpu.nvml_dev is None else f"GPU {gpu.nvml_dev}"
    return f"{dev} busId {escape_controls(gpu.bus_id)}" if gpu and gpu.bus_id else dev
