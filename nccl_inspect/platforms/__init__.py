"""What is known of machine types, one TOML file each: what their GPUs and NICs can do, with its source.

A missing entry means that it is not known; rules then say so instead of guessing. Keys:

* ``name``, ``aliases``: as users and plugins write it; ``vendor``; ``gpu``, ``gpus``: model and number on one machine
* ``gpu_names``: as the driver names the GPU, without the maker, where that alone tells what the entry says
* ``nvlink``: its generation, 0 for none; ``p2p``: whether NCCL uses P2P between its GPUs by default
* ``nics``, ``nic_gbps``: number and rate in Gb/s of the NICs meant for NCCL; ``network``: efa, ib, roce, tcpx,
tcpxo, tcp
* ``gdr``: whether GPUDirect RDMA works there; ``source``: where all this is stated
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nccl_inspect.errors import NcclInspectError, suggestion
from nccl_inspect.records import Record


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Platform(Record):
    """One machine type."""

    name: str
    source: str
    vendor: str = ""
    aliases: tuple[str, ...] = ()
    gpu: str | None = None
    gpu_names: tuple[str, ...] = ()
    gpus: int | None = None
    nvlink: int | None = None
    p2p: bool | None = None
    nics: int | None = None
    nic_gbps: int | None = None
    network: str | None = None
    gdr: bool | None = None

    def excludes(self, other: Platform) -> bool:
        """Whether a machine of this type cannot be of the other one, too.

        A type that the names of GPUs tell stands for all machines with such GPUs.
        """
        if not self.gpu_names:
            return self.name != other.name
        models = {machine.gpu.split()[0] for machine in (self, other) if machine.gpu}
        generations = {machine.nvlink for machine in (self, other) if machine.nvlink is not None}
        return len(models) > 1 or len(generations) > 1


@cache
def shipped() -> dict[str, Platform]:
    """All platforms by name and alias, in small letters."""
    import tomllib  # a log without a platform does not need it

    found: dict[str, Platform] = {}
    for file in sorted(Path(__file__).parent.glob("*.toml")):
        table: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
        lists: dict[str, Any] = {key: tuple(value) for key, value in table.items() if isinstance(value, list)}
        platform = Platform(**{**table, **lists})
        for name in (platform.name, *platform.aliases):
            found[name.lower()] = platform
    return found


def find(name: str) -> Platform | None:
    """The platform of that name or alias, None when it is not known."""
    return shipped().get(name.lower())


def of_gpus(names: Iterable[str]) -> Platform | None:
    """What the names of all GPUs of a job tell; None where they differ, or where one tells nothing."""
    plain = {name.strip().removeprefix("NVIDIA ") for name in names}
    fits = (platform for platform in shipped().values() if plain <= {*platform.gpu_names})
    return next(fits, None) if plain else None


def named(name: str) -> Platform:
    """The platform that a user names.

    Raises:
        NcclInspectError: there is none; the message names similar ones.
    """
    if platform := find(name):
        return platform
    hint = suggestion(name.lower(), shipped()) or "known are " + ", ".join(sorted(shipped()))
    raise NcclInspectError(f"no platform '{name}'", hint)
