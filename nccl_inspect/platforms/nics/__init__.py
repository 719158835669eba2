"""Families of NICs, by the names of their devices, one TOML file each, where all of a family have something. Keys:

* ``name``: as people call it
* ``devices``: names of its devices; ``*`` stands for anything
* ``gdr``: whether GPUDirect RDMA works with it over NCCL's own InfiniBand transport
* ``source``: where that is stated
"""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from nccl_inspect.util.records import Frozen, frozen


@frozen
class Family(Frozen):
    """Holds what rules ask about NICs."""

    name: str
    devices: str
    gdr: bool
    source: str


@cache
def _all() -> tuple[Family, ...]:
    import tomllib  # most jobs do not need it

    files = sorted(Path(__file__).parent.glob("*.toml"))
    return tuple(Family(**tomllib.loads(file.read_text(encoding="utf-8"))) for file in files)


def find(devices: Collection[str]) -> Family | None:
    """Return the family of all these devices; None for none, for several families and for unknown ones."""
    fits = (family for family in _all() if all(fnmatchcase(device, family.devices) for device in devices))
    return next(fits, None) if devices else None
