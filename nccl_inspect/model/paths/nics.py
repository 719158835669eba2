"""Names of NICs by their index: what the networks list when they start, and the virtual devices that NCCL makes."""

from __future__ import annotations

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import NetDevices
from nccl_inspect.model.fold.fold import ProcessLog
from nccl_inspect.model.statements.index import Statements, by_process


class NicNames:
    """Looks up what processes state; each lists its own devices, and the index is one in that list.

    Args:
        statements: of all processes.
    """

    def __init__(self, statements: Statements) -> None:
        self._listed = by_process(statements.of(NetDevices))
        self._known: dict[tuple[Process, str], dict[int, str]] = {}

    def of(self, log: ProcessLog, net: str, index: int) -> str | None:
        """The name of a NIC of a network, None where the process does not list it."""
        net = listed_as(net)
        key = (log.process, net)
        if key not in self._known:
            self._known[key] = {
                int(device[0]): str(device[1])
                for said in self._listed.get(log.process, ())
                if isinstance(said.event, NetDevices) and said.event.net == net
                for device in said.event.devices
            }
        return self._known[key].get(index)


def listed_as(net: str) -> str:
    """The name under which a network lists its devices: HPC-X's plugin prints its list as NET/IB."""
    return "IB" if net.startswith("IBext") else net
