"""What is known of networks and NICs.

``networks/NAME.toml`` describes a network that machine types name, ``nics/NAME.toml`` a family of NICs which all have
something.
"""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from nccl_inspect.util.records import Frozen, frozen


@frozen
class Network(Frozen):
    """Holds what rules ask about a network."""

    rdma: bool = True
    """Whether NICs read and write memory there."""
    plugin: str = ""
    """What NCCL needs to use it, as people call it; empty where NCCL itself can."""
    vendor: str = ""
    """Of the cloud whose network it is."""


@cache
def find_network(name: str | None) -> Network:
    """Return the network of that name; one of which nothing is known for any other name."""
    file = Path(__file__).parent / "networks" / f"{name}.toml"
    if name is None or not file.is_file():
        return Network()
    import tomllib  # a log without a platform does not need it

    return Network(**tomllib.loads(file.read_text(encoding="utf-8")))


@frozen
class NicFamily(Frozen):
    """Holds what rules ask about NICs."""

    name: str
    """As people call it."""
    devices: str
    """Names of its devices; ``*`` stands for anything."""
    gdr: bool
    """Whether GPUDirect RDMA works with it over NCCL's own InfiniBand transport."""
    source: str
    """Where that is stated."""


@cache
def _families() -> tuple[NicFamily, ...]:
    import tomllib  # most jobs do not need it

    files = sorted((Path(__file__).parent / "nics").glob("*.toml"))
    return tuple(NicFamily(**tomllib.loads(file.read_text(encoding="utf-8"))) for file in files)


def find_nic_family(devices: Collection[str]) -> NicFamily | None:
    """Return the family of all these devices; None for none, for several families and for unknown ones."""
    fits = (family for family in _families() if all(fnmatchcase(device, family.devices) for device in devices))
    return next(fits, None) if devices else None
