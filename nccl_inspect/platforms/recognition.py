"""Which machine type a log is of, by the signs that platforms declare and by the names of GPUs.

Only what is sure counts: where several types fit, the answer is what they have in common.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase

from nccl_inspect import platforms
from nccl_inspect.platforms import Platform
from nccl_inspect.util.records import Frozen, frozen

SETTINGS = ("NCCL_IB_TC", "NCCL_TOPO_FILE")
"""One of these is in each sign that consists of settings, so that other logs do not wait for the platforms to load."""
NETWORKS = ("FasTrak*", "gIB*", "GPUDirectTCPX*", "*Libfabric")
"""All signs that are networks, for the same reason."""


@frozen
class Shown(Frozen):
    """Holds what a log shows of its machines."""

    settings: AbstractSet[tuple[str, str]] = frozenset()
    """Names and values, without what a plugin set."""
    networks: AbstractSet[str] = frozenset()
    plugin: tuple[str, ...] = ()
    """The platform as aws-ofi-nccl calls it, in the order of the log."""
    nvlink_domain: int = 0
    """The most GPUs that multi-node NVLink joins, as far as the log shows."""
    gpu_names: AbstractSet[str] = frozenset()
    gpus: int = 0
    """The most GPUs of a host."""


def recognised(shown: Shown) -> Platform | None:
    """The machine type that a log names, else what the types have in common that fit it, else what its GPUs show."""
    for word in shown.plugin:
        if named := platforms.find(word):
            return named
    by_gpus = platforms.of_gpus(shown.gpu_names) if shown.gpu_names else None
    fitting = [
        platform
        for platform in _signed(shown)
        if not (by_gpus and by_gpus.excludes(platform)) and not (platform.gpus and platform.gpus < shown.gpus)
    ]
    return platforms.common(fitting) if fitting else by_gpus


def _signed(shown: Shown) -> list[Platform]:
    """The types that fit every sign in the log."""
    networks = {name for name in shown.networks if any(fnmatchcase(name, pattern) for pattern in NETWORKS)}
    settings = {name for name, _ in shown.settings} & {*SETTINGS}
    if not (networks or settings or shown.plugin or shown.nvlink_domain):
        return []
    gpus = platforms.without_maker(shown.gpu_names)
    candidates = [one for one in platforms.signed() if not one.signs.gpus or (gpus and gpus <= {*one.signs.gpus})]
    by_sign = [
        {platform.name for platform in candidates if _has_settings(platform, shown)},
        {platform.name for platform in candidates if _any_fits(platform.signs.networks, networks)},
        {platform.name for platform in candidates if _any_fits(platform.signs.plugin, shown.plugin)},
        {platform.name for platform in candidates if 0 < shown.nvlink_domain == platform.signs.nvlink_domain},
    ]
    signs = [names for names in by_sign if names]
    return [platform for platform in candidates if signs and all(platform.name in names for names in signs)]


def _has_settings(platform: Platform, shown: Shown) -> bool:
    return any(all(_is_set(condition, shown) for condition in sign.split()) for sign in platform.signs.settings)


def _is_set(condition: str, shown: Shown) -> bool:
    name, _, pattern = condition.partition("=")
    return any(name == variable and fnmatchcase(value, pattern) for variable, value in shown.settings)


def _any_fits(patterns: Iterable[str], words: Collection[str]) -> bool:
    return any(fnmatchcase(word, pattern) for pattern in patterns for word in words)
