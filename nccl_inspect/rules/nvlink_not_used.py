"""GPUs connected by NVLink communicate through host memory or the network."""

from collections.abc import Iterator

from nccl_inspect.event.types import P2pRefused
from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.hardware.peer_to_peer import disabling_settings
from nccl_inspect.judging.impact import against_nvlink
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find pairs that are known to have NVLink; otherwise ``shm-instead-of-p2p`` asks for the topology."""
    machine = facts.platform
    on_all = machine is not None and bool(machine.nvlink and machine.p2p)
    idle = facts.paths("intra").where(
        lambda kind: kind.transport != "P2P" and (kind.pair_class.startswith("NV") if kind.pair_class else on_all)
    )
    if idle:
        named = {
            "kinds": sorted({kind.pair_class for kind in idle.kinds if kind.pair_class}),
            "machine": machine.name if machine else "the machine",
            "cost": against_nvlink(idle, machine),
            "off": [*disabling_settings(facts), *facts.enabled_settings("NCCL_SHM_DISABLE")],
            "refused": facts.with_event(P2pRefused),
            "from a list": facts.hardware == "likely",
        }
        yield Hit(named=named, paths=idle)
