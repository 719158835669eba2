"""Names of NICs by their index: what the networks list when they start, and the virtual devices that NCCL makes."""

from __future__ import annotations

from operator import itemgetter
from typing import NamedTuple

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import NetDevices
from nccl_inspect.model.fold.fold import ProcessLog
from nccl_inspect.model.statements.index import Statements


class _Listed(NamedTuple):
    place: int
    names: dict[int, str]


class NicNames:
    """Looks up what processes state; each lists its own devices, and the index is one in that list.

    Args:
        statements: of all processes.
    """

    def __init__(self, statements: Statements) -> None:
        self._listed: dict[tuple[Process, str], list[_Listed]] = {}
        for statement in statements.of(NetDevices):
            event = statement.event
            assert isinstance(event, NetDevices)
            names = {int(device[0]): str(device[1]) for device in event.devices}
            for process, place in zip(statement.processes, statement.places, strict=True):
                self._listed.setdefault((process, event.net), []).append(_Listed(place, names))

    def of(self, log: ProcessLog, net: str, index: int) -> str | None:
        """The name of a NIC of a network, None where the process does not list it."""
        lists = self._listed.get((log.process, listed_as(net)), ())
        naming = [listed for listed in lists if index in listed.names]
        return max(naming, key=itemgetter(0)).names[index] if naming else None


def listed_as(net: str) -> str:
    """The name under which a network lists its devices: HPC-X's plugin prints its list as NET/IB."""
    return "IB" if net.startswith("IBext") else net
