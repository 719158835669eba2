"""A path between two ranks, its ends, and what paths have in common that differ only in their ranks. Plain data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Any, NamedTuple

from nccl_inspect.model.evidence import Evidence
from nccl_inspect.util.records import Record, Slotted, record

SIDES = ("send", "receive")
"""The ends of a network connection; what prints one names it so."""


@record
class AlsoPath(Record):
    """A second way between the same ranks, in another communicator or on another channel."""

    transport: str
    detail: str
    gdr: bool | str | None
    communicators: list[str]


class End(NamedTuple):
    """One end of a network connection, as the rank there prints it."""

    nic_index: int | None
    nic: str | None
    """The name of the NIC, where the log lists it."""
    gdr: bool
    pxn_rank: int | None
    """The rank whose NIC sends instead of the own one (PXN); a receiving end prints none."""


class Link(NamedTuple):
    """Channels of a network path whose two ends say the same; an end whose line is not in the log is None."""

    send: End | None
    receive: End | None
    send_recv: bool
    """Whether it is a connection of send/recv, not of rings and trees."""
    channels: int
    """A bit for each channel."""

    @property
    def crosses_rails(self) -> bool:
        """Return whether both ends are known and use NICs of different number and name."""
        if self.send is None or self.receive is None or self.send.nic_index == self.receive.nic_index:
            return False
        return self.send.nic is None or self.send.nic != self.receive.nic


_SHARED = (
    "scope",
    "transport",
    "detail",
    "gdr",
    "nic",
    "nic_index",
    "pxn_rank",
    "shared",
    "guessed",
    "net",
)
_LISTED = ("channels", "also", "links")
_JUDGED = ("gpu_class", "link", "expected", "verdict")

P2P_CLASSES = ("NV", "PIX", "PXB")
"""Classes over which NCCL uses P2P by default on every platform (src/graph/paths.cc, 2.4 to 2.31)."""


class TwoEnded:
    """Holds what the links of a path say of both of its ends."""

    __slots__ = ()
    links: list[Link] | tuple[Link, ...]

    def ends(self, side: str) -> set[End]:
        """Return what one side says of its end: ``send`` or ``receive``; empty when its log is not here."""
        ends = {link.send if side == "send" else link.receive for link in self.links}
        return {end for end in ends if end is not None}

    def gdr_at(self, side: str) -> bool | str | None:
        """Like ``gdr``, of one side; None when its log is not here."""
        values = {end.gdr for end in self.ends(side)}
        return "partial" if len(values) > 1 else values.pop() if values else None

    def nic_at(self, side: str) -> str | None:
        """Return the NIC of one side, several with commas: name, or index where the log lists no names; else None."""
        names = {end.nic or str(end.nic_index) for end in self.ends(side) if end.nic or end.nic_index is not None}
        return ",".join(sorted(names)) or None


@record
class PathKind(TwoEnded, Slotted):
    """Holds what many paths have in common: all but ranks, hosts, GPUs, communicators and evidence.

    A job has few kinds, whatever its size: rules and reports ask them, not each path. The fields are those of
    :class:`Path`. A kind is equal to itself only.
    """

    scope: str
    transport: str
    detail: str
    gdr: bool | str | None
    nic: str | None
    nic_index: int | None
    pxn_rank: int | None
    shared: bool
    guessed: bool
    net: str | None
    channels: tuple[int, ...]
    also: tuple[AlsoPath, ...]
    links: tuple[Link, ...]
    gpu_class: str | None = None
    link: str | None = None
    expected: str | None = None
    verdict: str = "unknown"
    rules: tuple[str, ...] = ()
    pair_class: str | None = None
    """The class of a pair within a host (``NV12``, ``NODE``, …) by what is given and by the log itself; None when it is
    not known, or when what is known disagrees on whether P2P is possible; only while it is judged."""
    on_fabric: bool = False
    """Whether both GPUs hang on an NVSwitch; only while it is judged."""


@record
class Path(TwoEnded, Record):
    """Holds how data goes from one rank to another."""

    src: int
    dst: int
    src_host: str | None
    dst_host: str | None
    scope: str
    """``intra`` (within a host), ``inter`` or ``unknown``."""
    transport: str
    detail: str
    gdr: bool | str | None
    """True, False, ``partial`` (some lines only), None where it does not apply."""
    nic: str | None
    nic_index: int | None
    pxn_rank: int | None
    shared: bool
    channels: list[int]
    communicators: list[str]
    verdict: str = "unknown"
    """``ok``, ``fallback`` or ``unknown``."""
    rules: list[str] = field(default_factory=list)
    also: list[AlsoPath] = field(default_factory=list)
    guessed: bool = False
    """Whether only the order in which communicators were used tells that the lines are of this one."""
    evidence: list[Evidence] = field(default_factory=list)
    net: str | None = None
    src_gpu: str | None = None
    """The bracket of the line: nvmlDev or PCI bus id of the sender."""
    dst_gpu: str | None = None
    links: list[Link] = field(default_factory=list)
    """Both ends of a NET path, by channels."""
    gpu_class: str | None = None
    """The class of a P2P pair as NCCL detected it (subsystem GRAPH): ``NVL``, ``NVB``, ``PIX``, ``PHB``, …"""
    link: str | None = None
    """What a P2P path runs over, ``NVLink`` or ``PCIe``, where log, topology or platform state it; set by the rules."""
    expected: str | None = None
    """The best that the pair could have, where topology or platform state it: ``P2P (NV18)``; set by the rules."""


def kind_of(path: Path) -> PathKind:
    """Return what a path has in common with others."""
    fields: dict[str, Any] = {name: getattr(path, name) for name in (*_SHARED, *_JUDGED)}
    return PathKind(**fields | {name: tuple(getattr(path, name)) for name in (*_LISTED, "rules")})


def key_of(path: Path | PathKind) -> tuple[object, ...]:
    """Equal for paths of one kind."""
    also = tuple((way.transport, way.detail, way.gdr, *way.communicators) for way in path.also)
    alike = tuple([getattr(path, name) for name in (*_SHARED, *_JUDGED)])
    return alike, tuple(path.channels), also, tuple(path.links), tuple(path.rules)


def path_of(
    kind: PathKind,
    *,
    src: int,
    dst: int,
    src_host: str | None,
    dst_host: str | None,
    src_gpu: str | None,
    dst_gpu: str | None,
    communicators: Iterable[str],
    evidence: list[Evidence],
) -> Path:
    """Return a path of a kind."""
    fields: dict[str, Any] = {name: getattr(kind, name) for name in (*_SHARED, *_JUDGED)}
    return Path(
        src=src,
        dst=dst,
        src_host=src_host,
        dst_host=dst_host,
        src_gpu=src_gpu,
        dst_gpu=dst_gpu,
        communicators=list(communicators),
        evidence=evidence,
        **fields | {name: list(getattr(kind, name)) for name in (*_LISTED, "rules")},
    )
