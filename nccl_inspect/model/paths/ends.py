"""Joins what both ends say of network connections: which NIC, with GPUDirect or not, for which channels.

Sender and receiver print a line each, about their own end only. Lines belong together when communicator, connection
set and channel are the same; channels are bits, so that a pair with 64 channels costs as much as one with a single one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from operator import itemgetter, or_

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import NetDevices
from nccl_inspect.model.communicators.members import SEND_RECV
from nccl_inspect.model.fold.process_log import ProcessLog
from nccl_inspect.model.paths.path import End, Link
from nccl_inspect.model.paths.placement import Line
from nccl_inspect.model.statements.index import Statement

NicName = Callable[[ProcessLog, str, int], str | None]
"""The name of a NIC by process, network and index, where the log lists it."""


def pair_ends(way: Iterable[Line], nic_name: NicName) -> list[Link]:
    """Return the links of a network path: channels whose ends say the same are one."""
    sides: dict[tuple[str, int | None], tuple[dict[End, int], dict[End, int]]] = {}
    for line in way:
        event = line.event
        both = sides.setdefault((line.communicator, event.conn), ({}, {}))
        named = event.net is not None and event.nic_index is not None
        nic = nic_name(line.placement.log, event.net or "", event.nic_index or 0) if named else None
        end = End(event.nic_index, nic, event.gdr, line.pxn_rank)
        mine = both[event.direction == "receive"]
        mine[end] = mine.get(end, 0) | line.edge.channels
    channels_of_link: dict[tuple[End | None, End | None, bool], int] = {}
    for (_, conn), (send, receive) in sides.items():
        for sender, receiver, channels in _pair_ends(send, receive):
            key = sender, receiver, conn == SEND_RECV
            channels_of_link[key] = channels_of_link.get(key, 0) | channels
    return [Link(*key, channels) for key, channels in channels_of_link.items()]


def _pair_ends(send: dict[End, int], receive: dict[End, int]) -> Iterator[tuple[End | None, End | None, int]]:
    """Pair the ends by channel; one that a side names twice is not paired: it may be two connections."""
    twice = _named_twice(send) | _named_twice(receive)
    for sender, sent in send.items():
        alone = sent
        for receiver, received in receive.items():
            if both := sent & received & ~twice:
                yield sender, receiver, both
                alone &= ~both
        if alone:
            yield sender, None, alone
    paired = ~twice & reduce(or_, send.values(), 0)
    for receiver, received in receive.items():
        if alone := received & ~paired:
            yield None, receiver, alone


def _named_twice(ends: dict[End, int]) -> int:
    seen = again = 0
    for channels in ends.values():
        again |= seen & channels
        seen |= channels
    return again


class NicNames:
    """Looks up what processes state; each lists its own devices, and the index is one in that list."""

    def __init__(self, statements: Iterable[Statement]) -> None:
        self._names: dict[Process, dict[tuple[str, int], str]] = {}
        listed = [
            (note.place, process, statement.event)
            for statement in statements
            if isinstance(statement.event, NetDevices)
            for process, note in zip(statement.processes, statement.notes, strict=True)
        ]
        for _, process, event in sorted(listed, key=itemgetter(0)):  # a later list counts
            names = self._names.setdefault(process, {})
            names.update(((event.net, int(device[0])), str(device[1])) for device in event.devices)
        self._lists: dict[object, int] = {}
        self._numbers: dict[int, int] = {}  # by the id of what a process printed the number of its list

    def find_name(self, log: ProcessLog, net: str, index: int) -> str | None:
        """Return the name of a NIC of a network, None where the process does not list it."""
        return self._names.get(log.process, {}).get((listed_as(net), index))

    def number(self, log: ProcessLog) -> int:
        """Return a number for the names of all NICs of a process: the same for all that have the same."""
        number = self._numbers.get(id(log))
        if number is None:
            names = tuple(sorted(self._names.get(log.process, {}).items()))
            number = self._numbers[id(log)] = self._lists.setdefault(names, len(self._lists))
        return number


def listed_as(net: str) -> str:
    """Return the name under which a network lists its devices: HPC-X's plugin prints its list as NET/IB."""
    return "IB" if net.startswith("IBext") else net
