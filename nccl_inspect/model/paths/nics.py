"""Names of NICs by their index: what the networks list when they start, and the virtual devices that NCCL makes."""

from __future__ import annotations

from nccl_inspect.event.types import NetDevices
from nccl_inspect.model.fold.fold import ProcessLog


class NicNames:
    """Looks names up in the notes of a process; a process lists its own devices, and the index is one in that list."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], dict[int, str]] = {}

    def of(self, log: ProcessLog, net: str, index: int) -> str | None:
        """The name of a NIC of a network, None where the process does not list it."""
        net = listed_as(net)
        key = (id(log), net)
        if key not in self._known:
            self._known[key] = {
                int(device[0]): str(device[1])
                for note in log.notes.values()
                if isinstance(note.event, NetDevices) and note.event.net == net
                for device in note.event.devices
            }
        return self._known[key].get(index)


def listed_as(net: str) -> str:
    """The name under which a network lists its devices: HPC-X's plugin prints its list as NET/IB."""
    return "IB" if net.startswith("IBext") else net
