"""What a platform lets a job expect: some of it holds from a release on, or with more GPUs, or by a setting only."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from nccl_inspect.model.versions import order
from nccl_inspect.platforms import Platform

_LIMITS = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")
"""Settings that keep GPUs from P2P that NCCL would use."""


def expected_of(
    platform: Platform, releases: Collection[str], gpus: int, settings: Collection[tuple[str, str]]
) -> Platform:
    """A platform without what does not hold for a job, or may not.

    GPUDirect RDMA that depends on the release is not expected of an unknown one: to miss it would be an error.

    Where NCCL may use P2P by default, on AMD hosts before 2.23 or with two GPUs, and does not, the machine does not let
    it. Only a setting leaves open what it would do without.

    Args:
        platform: the machine type.
        releases: of NCCL in the job, as far as they are known; also ranges such as ``2.22.3 to 2.26.6 (inferred)``.
        gpus: the most GPUs of a host that one communicator joins, 0 where that is not known.
        settings: names and values.
    """
    few = bool(platform.p2p_least_gpus and 0 < gpus < platform.p2p_least_gpus)
    may_use_it = few or any(_is_before(release, platform.p2p_since) for release in releases)
    if platform.p2p is False and may_use_it and any(name in _LIMITS for name, _ in settings):
        platform = replace(platform, p2p=None)
    if platform.gdr and not _does_by_default(platform, releases) and not _is_on(platform, settings):
        platform = replace(platform, gdr=None)
    return platform


def _does_by_default(platform: Platform, releases: Collection[str]) -> bool:
    if platform.gdr_since is None:
        return True
    return bool(releases) and all(_is_since(release, platform.gdr_since) for release in releases)


def _is_on(platform: Platform, settings: Collection[tuple[str, str]]) -> bool:
    name, _, value = (platform.gdr_setting or "").partition("=")
    return (name, value) in settings


def _is_since(release: str, first: str) -> bool:
    """Whether a release, or all of a range, are not older."""
    return "or earlier" not in release and order(release) >= order(first)


def _is_before(release: str, first: str | None) -> bool:
    """Whether a release, or all of a range, are older."""
    return first is not None and "or later" not in release and order(release.rpartition(" to ")[2]) < order(first)
