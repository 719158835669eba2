"""The look of links in pictures: each kind has a color, a dash pattern and a word, so that none depends on color
alone. The colors are those of Okabe and Ito, which color-blind people can distinguish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nccl_inspect.report.picture.view import DrawnLink, View
from nccl_inspect.util.text import printable
from nccl_inspect.util.wording import STATES, count, ranges


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
_BY_KEY = {look.key: look for look in LOOKS}


def look_of(link: DrawnLink) -> Look:
    """The look of a link."""
    if link.transport == "NET":
        return _BY_KEY["gdr" if link.gdr is True else "net"]
    return _BY_KEY.get((link.transport or "unknown").lower(), _BY_KEY["unknown"])


def lanes(channels: Sequence[int]) -> str:
    """Channels in words: ``channel 0``, ``channels 0-3``."""
    return f"channel{'s' if len(channels) > 1 else ''} {ranges(channels)}"


def words_of(link: DrawnLink) -> str:
    """A link in words."""
    way = printable(link.detail or "no connection line") + ("/GDRDMA" if link.gdr is True else "")
    return f"{link.src} -> {link.dst}: {way}, {lanes(link.channels)}"


def title_of(view: View) -> str:
    """The head line of a communicator."""
    hosts = count(len(view.hosts), "host")
    lanes = f", {count(view.channels, 'channel')}" if view.channels else ""
    return (
        f"{printable(view.name)}: {count(view.nranks, 'rank')} on {hosts}{lanes}, {STATES.get(view.state, view.state)}"
    )


def gpu_words(view: View, rank: int) -> str:
    """The GPU of a rank; empty if the log does not name it."""
    gpu = view.gpus.get(rank)
    if gpu is None:
        return ""
    dev = f"GPU {gpu.nvml_dev}" if gpu.nvml_dev is not None else "GPU"
    return f"{dev} busId {printable(gpu.bus_id)}" if gpu.bus_id else dev


class Bundle(NamedTuple):
    """All links of one look between two hosts."""

    src: str
    dst: str
    look: Look
    links: int


def bundles(view: View, kind: str) -> list[Bundle]:
    """The links of one kind, host by host."""
    host_of = {rank: host for host, ranks in view.hosts.items() for rank in ranks}
    counts: dict[tuple[str, str, str], int] = {}
    for link in view.links:
        if link.kind == kind and link.src in host_of and link.dst in host_of:
            key = host_of[link.src], host_of[link.dst], look_of(link).key
            counts[key] = counts.get(key, 0) + 1
    return [Bundle(src, dst, _BY_KEY[key], links) for (src, dst, key), links in counts.items()]
