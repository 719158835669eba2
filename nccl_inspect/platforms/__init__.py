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
  together, where that is another one; ``port_nics``: as how many NICs a port appears that one GPU has; ``network``: a
  name of a file in ``networks/``
* ``gdr``: whether GPUDirect RDMA works there; ``gdr_since``: the release from which on it does by default, and
  ``gdr_setting``: what switches it on (``NAME=1``) and off (``NAME=0``) whatever the default is
* ``signs``: what names the machine in a log, see :class:`Signs`
* ``sources``: where all this is stated, each with ``url`` and the keys that it ``states``

``networks/NAME.toml`` describes a network that machine types name, ``nics/NAME.toml`` a family of NICs which all have
something.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from nccl_inspect.errors import NcclInspectError, suggestion
from nccl_inspect.model.versions import order
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Frozen

_IN_FRONT = ("standard-", "ml.", "nvidia-")
"""What Azure, SageMaker and the driver put in front of the names of their sizes and GPUs."""
_OR = " or "
_TOGETHER = (("gdr", "gdr_since", "gdr_setting"), ("p2p", "p2p_since", "p2p_least_gpus"))
"""A fact and what it depends on: without its conditions it would be claimed of more jobs than it holds for."""
_MODEL = compile_later(r"(?:gb|gh|mi|[abhv])\d{3}(?!\d)")  # a GPU model of data centers in a name


class Source(Frozen):
    """Holds where something is stated."""

    url: str
    states: tuple[str, ...]  # keys of the platform


class Signs(Frozen):
    """Holds what names a machine type in a log, as patterns in which ``*`` stands for anything.

    Or what a log shows of it.
    """

    settings: tuple[str, ...] = ()  # `NAME=VALUE`; several with spaces between them must all be there
    networks: tuple[str, ...] = ()  # networks that NCCL or a plugin names
    plugin: tuple[str, ...] = ()  # the platform as aws-ofi-nccl calls it
    nvlink_domain: int = 0  # how many GPUs multi-node NVLink joins
    gpus: tuple[str, ...] = ()  # names of GPUs as the driver has them, which another sign needs beside it


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
    port_nics: int = 1
    nic_gbps: int | None = None
    gpu_gbps: int | None = None
    network: str | None = None
    gdr: bool | None = None
    gdr_since: str | None = None
    gdr_setting: str | None = None
    signs: Signs = Signs()

    @property
    def rate(self) -> int | None:
        """Return the bandwidth of one GPU in Gb/s; None where several NICs are near it and no source says which."""
        if self.gpu_gbps:
            return self.gpu_gbps
        return None if self.nics and self.gpus and self.nics > self.gpus else self.nic_gbps

    def source(self, key: str) -> str:
        """Return where a key is stated."""
        return next((source.url for source in self.sources if key in source.states), "")

    def excludes(self, other: Platform) -> bool:
        """Return whether a machine of this type cannot be of the other one, too.

        A type that the names of GPUs tell, or what all racks have in common, stands for many machines; a log may fit
        several types equally.
        """
        if not (self.gpu_names or other.gpu_names) and (self.gpu or _OR in self.name):
            return not {*self.name.split(_OR)} & {*other.name.split(_OR)}
        models = {machine.gpu.split()[0] for machine in (self, other) if machine.gpu}
        joined = (machine.nvlink_pairs if machine.nvlink is None else machine.nvlink for machine in (self, other))
        return len(models) > 1 or len({*joined} - {None}) > 1


def _load_all(*keys: str) -> Iterator[Platform]:
    """Yield the platforms whose files contain one of these keys, or all; that takes as long as to judge a short log."""
    return (_platform(file, text) for file, text in _texts() if not keys or any(key in text for key in keys))


@cache
def _texts() -> tuple[tuple[str, str], ...]:
    return tuple((file.name, file.read_text(encoding="utf-8")) for file in sorted(Path(__file__).parent.glob("*.toml")))


@cache
def _platform(file: str, text: str) -> Platform:
    import tomllib  # a log without a platform does not need it

    try:
        table = tomllib.loads(text)
        sources = tuple(Source(source["url"], tuple(source["states"])) for source in table.pop("sources"))
        signs = Signs(**_freeze(table.pop("signs", {})))
        return Platform(sources=sources, signs=signs, **_freeze(table))
    except (KeyError, TypeError, tomllib.TOMLDecodeError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else error
        raise NcclInspectError(f"platforms/{file}: {what}", "platforms/__init__.py describes the keys") from None


def _freeze(table: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


@cache
def load_platforms() -> dict[str, Platform]:
    """Return all platforms by name and alias; an alias with ``*`` stands for names that :func:`find` knows."""
    return {
        name: platform for platform in _load_all() for name in (platform.name, *platform.aliases) if "*" not in name
    }


def _file_name(name: str) -> str:
    """Return a name as files have it: ``Standard_ND96isr_H100_v5`` is nd96isr-h100-v5, ``NVIDIA DGX H100`` dgx-h100."""
    plain = "-".join(name.lower().replace("_", " ").split())
    return next((plain.removeprefix(lead) for lead in _IN_FRONT if plain.startswith(lead)), plain)


def find(name: str) -> Platform | None:
    """Return the platform of that name, alias or GPU, None if unknown; ``a or b`` is what both have in common."""
    if _OR in name:
        parts = [find(entry) for entry in name.split(_OR)]
        return merge_common([entry for entry in parts if entry]) if all(parts) else None
    plain = _file_name(name)
    if known := load_platforms().get(plain):
        return known
    fits = (
        entry
        for entry in _load_all()
        if plain in map(_file_name, entry.gpu_names)
        or any("*" in alias and fnmatchcase(plain, alias) for alias in entry.aliases)
    )
    return next(fits, None)


def merge_common(candidates: list[Platform]) -> Platform:
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
    name = _OR.join(candidate.name for candidate in candidates)
    shared = Platform(**{**values, "name": name, "sources": sources, "aliases": (), "signs": Signs()})
    same = {candidate.rate for candidate in candidates} == {shared.rate}
    return shared if same else replace(shared, nic_gbps=None, gpu_gbps=None)


def find_by_gpus(names: Iterable[str]) -> Platform | None:
    """Return what the names of all GPUs of a job show; None where they differ, or where one shows nothing."""
    plain = drop_maker(names)
    exactly = (one for one in _load_all("gpu_names") if plain <= {*one.gpu_names})
    alike = (one for one in _load_all("gpu_names") if len(plain) == 1 and _any_fits(one.gpu_names, plain))
    return next(chain(exactly, alike), None) if plain else None


def drop_maker(names: Iterable[str]) -> set[str]:
    """Return names of GPUs as platforms have them."""
    return {name.strip().removeprefix("NVIDIA ") for name in names}


def require_platform(name: str) -> Platform:
    """Return the platform that a user names."""
    if platform := find(name):
        return platform
    plain = _file_name(name)
    models = {*_MODEL.findall(plain)}  # machines with other GPUs are not suggested
    names = sorted(name for name in load_platforms() if not models or models & {*_MODEL.findall(name)})
    if sizes := [names for names in sorted(load_platforms()) if names.startswith(f"{plain}.")]:
        hint = f"its sizes are {', '.join(sizes)}"
    elif names:
        hint = suggestion(plain, names) or "known are " + ", ".join(names)
    else:
        hint = f"no machine with {' or '.join(sorted(models)).upper()} is known; without --platform the log decides"
    raise NcclInspectError(f"no platform '{name}'", hint)


_LIMITS = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")  # settings that keep GPUs from P2P that NCCL would use


def expect_of_job(
    platform: Platform, releases: Collection[str], gpus: int, settings: Collection[tuple[str, str]]
) -> Platform:
    """Return a platform without what does not hold for a job, or may not.

    GPUDirect RDMA that depends on the release is not expected of an unknown one: to miss it would be an error.

    Where NCCL may use P2P by default, on AMD hosts before 2.23 or with two GPUs, and does not, the machine does not let
    it. Only a setting leaves open what it would do without.

    Args:
        releases: of NCCL in the job, as far as they are known; also ranges such as ``2.22.3 to 2.26.6 (inferred)``.
        gpus: the most GPUs of a host that one communicator joins, 0 where that is not known.
    """
    few = bool(platform.p2p_least_gpus and 0 < gpus < platform.p2p_least_gpus)
    may_use_it = few or any(
        platform.p2p_since is not None
        and "or later" not in release  # of a range all are older
        and order(release.rpartition(" to ")[2]) < order(platform.p2p_since)
        for release in releases
    )
    if platform.p2p is False and may_use_it and any(name in _LIMITS for name, _ in settings):
        platform = replace(platform, p2p=None)
    since = platform.gdr_since
    by_default = since is None or (
        bool(releases) and all("or earlier" not in release and order(release) >= order(since) for release in releases)
    )
    name, _, value = (platform.gdr_setting or "").partition("=")
    if platform.gdr and not by_default and (name, value) not in settings:
        platform = replace(platform, gdr=None)
    return platform


SETTINGS = ("NCCL_IB_TC", "NCCL_TOPO_FILE")
"""One of these is in each sign that consists of settings, so that other logs do not wait for the platforms to load."""
NETWORKS = ("FasTrak*", "gIB*", "GPUDirectTCPX*", "*Libfabric")  # all signs that are networks, for the same reason


class Shown(Frozen):
    """Holds what a log shows of its machines."""

    settings: AbstractSet[tuple[str, str]] = frozenset()  # names and values, without what a plugin set
    networks: AbstractSet[str] = frozenset()
    plugin: tuple[str, ...] = ()  # the platform as aws-ofi-nccl calls it, in the order of the log
    nvlink_domain: int = 0  # the most GPUs that multi-node NVLink joins, as far as the log shows
    gpu_names: AbstractSet[str] = frozenset()
    gpus: int = 0  # the most GPUs of a host


def recognise_platform(shown: Shown) -> Platform | None:
    """Return the machine type that a log names, else what fitting types have in common, else by its GPUs."""
    for word in shown.plugin:
        if named := find(word):
            return named
    by_gpus = find_by_gpus(shown.gpu_names) if shown.gpu_names else None
    fitting = [
        platform
        for platform in _platforms_by_signs(shown)
        if not (by_gpus and by_gpus.excludes(platform)) and not (platform.gpus and platform.gpus < shown.gpus)
    ]
    return merge_common(fitting) if fitting else by_gpus


def _platforms_by_signs(shown: Shown) -> list[Platform]:
    networks = {name for name in shown.networks if _any_fits(NETWORKS, [name])}
    settings = {name for name, _ in shown.settings} & {*SETTINGS}
    by_sign = {"settings": settings, "networks": networks, "plugin": shown.plugin, "nvlink_domain": shown.nvlink_domain}
    keys = [sign for sign, seen in by_sign.items() if seen]  # files without these cannot fit
    if not keys:
        return []
    gpus = drop_maker(shown.gpu_names)
    assigned = [f"{name}={value}" for name, value in shown.settings]
    candidates = []
    for one in _load_all(*keys):
        fits = (
            any(all(_any_fits([each], assigned) for each in sign.split()) for sign in one.signs.settings),
            _any_fits(one.signs.networks, networks),
            _any_fits(one.signs.plugin, shown.plugin),
            0 < shown.nvlink_domain == one.signs.nvlink_domain,
        )
        if not one.signs.gpus or (gpus and gpus <= {*one.signs.gpus}):
            candidates.append((one, fits))
    shows = [any(fits[sign] for _, fits in candidates) for sign in range(4)]
    return [one for one, fits in candidates if any(shows) and all(fits[sign] for sign in range(4) if shows[sign])]


def _any_fits(patterns: Iterable[str], words: Collection[str]) -> bool:
    return any(fnmatchcase(word, pattern) for pattern in patterns for word in words)


class Network(Frozen):
    """Holds what rules ask about a network."""

    rdma: bool = True  # whether NICs read and write memory there
    plugin: str = ""  # what NCCL needs to use it, as people call it; empty where NCCL itself can
    vendor: str = ""  # of the cloud whose network it is


@cache
def _load_tables(folder: str) -> dict[str, dict[str, Any]]:
    import tomllib  # a log without a platform does not need it

    files = sorted((Path(__file__).parent / folder).glob("*.toml"))
    return {file.stem: tomllib.loads(file.read_text(encoding="utf-8")) for file in files}


@cache
def find_network(name: str | None) -> Network:
    """Return the network of that name; one of which nothing is known for any other name."""
    return Network(**_load_tables("networks").get(name, {})) if name else Network()


class NicFamily(Frozen):
    """Holds what rules ask about NICs."""

    name: str  # as people call it
    devices: str  # names of its devices; `*` stands for anything
    gdr: bool  # whether GPUDirect RDMA works with it over NCCL's own InfiniBand transport
    source: str  # where that is stated


def find_nic_family(devices: Collection[str]) -> NicFamily | None:
    """Return the family of all these devices; None for none, for several families and for unknown ones."""
    families = (NicFamily(**table) for table in _load_tables("nics").values()) if devices else ()
    fits = (family for family in families if all(fnmatchcase(device, family.devices) for device in devices))
    return next(fits, None)
