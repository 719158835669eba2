"""The ways between two ranks and the ends of a network connection. Plain data; part of a path."""

from __future__ import annotations

from typing import NamedTuple

from nccl_inspect.util.records import Record, record

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
