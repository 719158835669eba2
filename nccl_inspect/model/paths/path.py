"""A path between two ranks, its ends, and what paths have in common that differ only in their ranks. Plain data."""

from __future__ import annotations

from typing import Any, NamedTuple

from nccl_inspect.model.evidence import Evidence
from nccl_inspect.util.records import Record, Slotted, values

SIDES = ("send", "receive")
"""The ends of a network connection; what prints one names it so."""


class AlsoPath(Record):
    """A second way between the same ranks, in another communicator or on another channel."""

    transport: str
    detail: str
    gdr: bool | str | None
    communicators: tuple[str, ...]


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


P2P_CLASSES = ("NV", "PIX", "PXB")
"""Classes over which NCCL uses P2P by default on every platform (src/graph/paths.cc, 2.4 to 2.31)."""


class PathKind(Slotted):
    """Holds what many paths have in common: all but ranks, hosts, GPUs, communicators and evidence.

    A job has few kinds, whatever its size: rules and reports ask them, not each path. A kind is equal to itself only.
    """

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
    guessed: bool
    """Whether only the order in which communicators were used tells that the lines are of this one."""
    doubtful: bool
    """Whether it may therefore be one of other ranks."""
    net: str | None
    channels: tuple[int, ...]
    also: tuple[AlsoPath, ...]
    links: tuple[Link, ...]
    """Both ends of a NET path, by channels."""
    gpu_class: str | None = None
    """The class of a P2P pair as NCCL detected it (subsystem GRAPH): ``NVL``, ``NVB``, ``PIX``, ``PHB``, …"""
    link: str | None = None
    """What a P2P path runs over, ``NVLink`` or ``PCIe``, where log, topology or platform state it; set by the rules."""
    expected: str | None = None
    """The best that the pair could have, where topology or platform state it: ``P2P (NV18)``; set by the rules."""
    verdict: str = "unknown"
    """``ok``, ``fallback`` or ``unknown``."""
    rules: tuple[str, ...] = ()
    pair_class: str | None = None
    """The class of a pair within a host (``NV12``, ``NODE``, …) by what is given and by the log itself; None when it is
    not known, or when what is known disagrees on whether P2P is possible; only while it is judged."""
    on_fabric: bool = False
    """Whether both GPUs hang on an NVSwitch; only while it is judged."""

    @property
    def has_p2p(self) -> bool:
        """Return whether P2P is one of the ways that the pair uses."""
        return self.transport == "P2P" or any(way.transport == "P2P" for way in self.also)

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


class Path(Record):
    """Holds how data goes from one rank to another; what its kind has, it has, too."""

    src: int
    dst: int
    src_host: str | None
    dst_host: str | None
    src_gpu: str | None
    """The bracket of the line: nvmlDev or PCI bus id of the sender."""
    dst_gpu: str | None
    communicators: list[str]
    kind: PathKind
    evidence: list[Evidence]

    def __getattr__(self, name: str) -> Any:
        if name in self.__slots__:
            raise AttributeError(name)
        value = getattr(self.kind, name)
        return list(value) if isinstance(value, tuple) else value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Path) and _list_values(self) == _list_values(other)

    def __hash__(self) -> int:
        return hash((self.src, self.dst, self.detail))


def _list_values(path: Path) -> tuple[Any, ...]:
    *own, kind, evidence = values(path)
    return (*own, values(kind), evidence)
