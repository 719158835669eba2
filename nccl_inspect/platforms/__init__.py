"""What is known of machine types, one TOML file each: what their GPUs and NICs can do, with its sources.

A missing entry means that it is not known; rules then say so instead of guessing. Keys:

* ``name``, ``aliases``: as users and plugins write it, in small letters with ``-``; an alias may hold ``*``
* ``vendor``; ``gpu``, ``gpus``: model and number on one machine
* ``gpu_names``: as the driver names the GPU, without the maker, where that alone says what the entry says; ``*`` stands
  for anything, and entries with full names come first
* ``nvlink``: the generation that joins all its GPUs, 0 for none; ``nvlink_pairs``: the generation that joins some pairs
  only (bridges, a cube mesh); ``nvlink_domain``: how many GPUs of several hosts it joins
* ``busbw``: lowest and highest bus bandwidth in GB/s between its GPUs, where it is not that of its NVLink
* ``p2p``: whether NCCL uses P2P between its GPUs by default; ``p2p_since``: the release from which on, and
  ``p2p_least_gpus``: with how many GPUs in the topology, it does not
* ``nics``, ``nic_gbps``: number and rate in Gb/s of the NICs meant for NCCL; ``gpu_gbps``: rate of those of one GPU
  together, where that is another one; ``network``: a name of :mod:`~nccl_inspect.platforms.networks`
* ``gdr``: whether GPUDirect RDMA works there; ``gdr_since``: the release from which on it does by default, and
  ``gdr_setting``: what switches it on (``NAME=1``) and off (``NAME=0``) whatever the default is
* ``signs``: what names the machine in a log, see :class:`Signs`
* ``sources``: where all this is stated, each with ``url`` and the keys that it ``states``
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from nccl_inspect.errors import NcclInspectError, suggestion
from nccl_inspect.util.patterns import later
from nccl_inspect.util.records import Frozen, frozen

_IN_FRONT = ("standard-", "ml.", "nvidia-")
"""What Azure, SageMaker and the driver put in front of the names of their sizes and GPUs."""
_OR = " or "
_TOGETHER = (("gdr", "gdr_since", "gdr_setting"), ("p2p", "p2p_since", "p2p_least_gpus"))
"""A fact and what it depends on: without its conditions it would be claimed of more jobs than it holds for."""
_MODEL = later(r"(?:gb|gh|mi|[abhv])\d{3}(?!\d)")
"""A GPU model of data centers in a name."""


@frozen
class Source(Frozen):
    """Holds where something is stated."""

    url: str
    states: tuple[str, ...]
    """Keys of the platform."""


@frozen
class Signs(Frozen):
    """Holds what names a machine type in a log, as patterns in which ``*`` stands for anything.

    Or what a log shows of it.
    """

    settings: tuple[str, ...] = ()
    """``NAME=VALUE``; several with spaces between them must all be there."""
    networks: tuple[str, ...] = ()
    """Networks that NCCL or a plugin names."""
    plugin: tuple[str, ...] = ()
    """The platform as aws-ofi-nccl calls it."""
    nvlink_domain: int = 0
    """How many GPUs multi-node NVLink joins."""
    gpus: tuple[str, ...] = ()
    """Names of GPUs as the driver has them, which another sign needs beside it."""


@frozen
class Platform(Frozen):
    """One machine type, or what several have in common."""

    name: str
    sources: tuple[Source, ...]
    vendor: str | None = None
    aliases: tuple[str, ...] = ()
    gpu: str | None = None
    gpu_names: tuple[str, ...] = ()
    gpus: int | None = None
    nvlink: int | None = None
    nvlink_pairs: int | None = None
    nvlink_domain: int | None = None
    busbw: tuple[float, float] | None = None
    p2p: bool | None = None
    p2p_since: str | None = None
    p2p_least_gpus: int | None = None
    nics: int | None = None
    nic_gbps: int | None = None
    gpu_gbps: int | None = None
    network: str | None = None
    gdr: bool | None = None
    gdr_since: str | None = None
    gdr_setting: str | None = None
    signs: Signs = Signs()

    @property
    def rate(self) -> int | None:
        """Network bandwidth of one GPU in Gb/s; None where several NICs are near it and no source says which one."""
        if self.gpu_gbps:
            return self.gpu_gbps
        return None if self.nics and self.gpus and self.nics > self.gpus else self.nic_gbps

    def source(self, key: str) -> str:
        """Return where a key is stated."""
        return next((source.url for source in self.sources if key in source.states), "")

    def excludes(self, other: Platform) -> bool:
        """Whether a machine of this type cannot be of the other one, too.

        A type that the names of GPUs tell, or what all racks have in common, stands for many machines; a log may fit
        several types equally.
        """
        if not (self.gpu_names or other.gpu_names) and (self.gpu or _OR in self.name):
            return not {*self.name.split(_OR)} & {*other.name.split(_OR)}
        models = {machine.gpu.split()[0] for machine in (self, other) if machine.gpu}
        joined = (machine.nvlink_pairs if machine.nvlink is None else machine.nvlink for machine in (self, other))
        return len(models) > 1 or len({*joined} - {None}) > 1


@cache
def _all() -> tuple[Platform, ...]:
    import tomllib  # a log without a platform does not need it

    files = sorted(Path(__file__).parent.glob("*.toml"))
    return tuple(_platform(tomllib.loads(file.read_text(encoding="utf-8"))) for file in files)


def _platform(table: dict[str, Any]) -> Platform:
    signs = Signs(**{key: _frozen(value) for key, value in table.pop("signs", {}).items()})
    sources = tuple(Source(url=source["url"], states=tuple(source["states"])) for source in table.pop("sources"))
    return Platform(sources=sources, signs=signs, **{key: _frozen(value) for key, value in table.items()})


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@cache
def shipped() -> dict[str, Platform]:
    """All platforms by name and alias; an alias with ``*`` stands for names that :func:`find` knows."""
    return {name: platform for platform in _all() for name in (platform.name, *platform.aliases) if "*" not in name}


def _as_here(name: str) -> str:
    """A name as files have it: ``Standard_ND96isr_H100_v5`` is nd96isr-h100-v5, ``NVIDIA DGX H100`` dgx-h100."""
    plain = "-".join(name.lower().replace("_", " ").split())
    return next((plain.removeprefix(lead) for lead in _IN_FRONT if plain.startswith(lead)), plain)


def find(name: str) -> Platform | None:
    """The platform of that name, alias or GPU, None when it is not known; ``a or b`` is what both have in common."""
    if _OR in name:
        parts = [find(entry) for entry in name.split(_OR)]
        return common([entry for entry in parts if entry]) if all(parts) else None
    plain = _as_here(name)
    return shipped().get(plain) or next((entry for entry in _all() if _is_called(entry, plain)), None)


def _is_called(platform: Platform, plain: str) -> bool:
    """Whether a name fits a pattern among the aliases, or is the driver's name for the GPU."""
    patterns = (alias for alias in platform.aliases if "*" in alias)
    return any(fnmatchcase(plain, alias) for alias in patterns) or plain in map(_as_here, platform.gpu_names)


def signed() -> Iterator[Platform]:
    """Return those that a log may name by a sign."""
    return (platform for platform in _all() if platform.signs != Signs())


def common(candidates: list[Platform]) -> Platform:
    """Return what several platforms have in common; the only one is itself."""
    if len(candidates) == 1:
        return candidates[0]
    values: dict[str, Any] = {}
    for field in fields(Platform):
        if len(stated := {getattr(candidate, field.name) for candidate in candidates}) == 1:
            values[field.name] = stated.pop()
    for keys in _TOGETHER:
        if not values.keys() >= {*keys}:
            values = {key: value for key, value in values.items() if key not in keys}
    sources = tuple(dict.fromkeys(source for candidate in candidates for source in candidate.sources))
    own = {
        "name": _OR.join(candidate.name for candidate in candidates),
        "sources": sources,
        "aliases": (),
        "signs": Signs(),
    }
    shared = Platform(**{**values, **own})
    same = {candidate.rate for candidate in candidates} == {shared.rate}
    return shared if same else replace(shared, nic_gbps=None, gpu_gbps=None)


def of_gpus(names: Iterable[str]) -> Platform | None:
    """Return what the names of all GPUs of a job show; None where they differ, or where one shows nothing."""
    plain = without_maker(names)
    only = next(iter(plain), "") if len(plain) == 1 else ""
    exactly = (platform for platform in _all() if plain <= {*platform.gpu_names})
    alike = (platform for platform in _all() if _is_listed(only, platform.gpu_names))
    return next(chain(exactly, alike), None) if plain else None


def without_maker(names: Iterable[str]) -> set[str]:
    """Return names of GPUs as platforms have them."""
    return {name.strip().removeprefix("NVIDIA ") for name in names}


def _is_listed(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def named(name: str) -> Platform:
    """The platform that a user names.

    Raises:
        NcclInspectError: there is none; the message names similar ones.
    """
    if platform := find(name):
        return platform
    raise NcclInspectError(f"no platform '{name}'", _hint(_as_here(name)))


def _hint(plain: str) -> str:
    """Return what to do about a name that is not known: machines with other GPUs are not suggested."""
    if sizes := [names for names in sorted(shipped()) if names.startswith(f"{plain}.")]:
        return f"its sizes are {', '.join(sizes)}"
    models = {*_MODEL.findall(plain)}
    names = sorted(name for name in shipped() if not models or models & {*_MODEL.findall(name)})
    if not names:
        return f"no machine with {' or '.join(sorted(models)).upper()} is known; without --platform the log decides"
    return suggestion(plain, names) or "known are " + ", ".join(names)
