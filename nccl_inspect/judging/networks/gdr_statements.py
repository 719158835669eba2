"""What NCCL, a plugin or a setting says of GPUDirect RDMA, where no connection shows whether it is used."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nccl_inspect.event.types import GdrDecision, NetDevices, OfiProvider
from nccl_inspect.judging.facts import Facts, hosts_in
from nccl_inspect.judging.networks.fallback import is_on_one_host
from nccl_inspect.model.job import Notice, Setting
from nccl_inspect.util.wording import ranges

_WEAK = "aws-ofi-nccl/ofi-gdr-not-supported"
"""The plugin says so of every provider without it; EFA has it on some instance types."""
_SETTINGS = {"NCCL_NET_GDR_LEVEL": ("LOC", "0"), "FI_EFA_USE_DEVICE_RDMA": ("0",)}
"""Values that switch it off."""
_NUMBERED = re.compile(r"(.*?)(\d+)")
_WITHOUT = re.compile(r"roce(?:P2)?p1s0f[01]")
"""The cards of DGX Spark (GB10), as Linux names them there: that machine has no GPUDirect RDMA."""
_MAYBE_WITHOUT = re.compile(r"(?:rdmap|efa_).*")
"""EFA devices: some instance types have GPUDirect RDMA, and others have not."""


def is_open(facts: Facts) -> bool:
    """Whether the log leaves open if hosts talk with GPUDirect RDMA, and machines and network could do so."""
    platform = facts.platform
    over_tcp = {net for comm in facts.job.communicators for net in comm.networks} == {"Socket"}
    shown = bool(facts.rdma()) or any(kind.gdr for kind in facts.job.paths.kinds)
    return not (shown or over_tcp or (platform and platform.gdr is False) or is_on_one_host(facts))


def refused(facts: Facts) -> list[Notice]:
    """NICs that cannot reach GPU memory, as their driver or the plugin says."""
    said = [*facts.with_role("gdr-refused"), *(facts.notices(_WEAK) if _is_on_efa(facts) else ())]
    return [notice for notice in said if "NET/Socket" not in notice.message and not _is_without(notice)]


def too_far(facts: Facts) -> list[Notice]:
    """GPUs that are too far from every NIC that is measured: a GPU near one is far from others, which is no fault."""
    said = [notice for notice in facts.said(GdrDecision) if getattr(notice.event, "distance", None) is not None]
    near = {(host, _gpu(n)) for n in said if getattr(n.event, "enabled", False) for host in n.hosts}
    return [n for n in said if not getattr(n.event, "enabled", False) and not near & {(h, _gpu(n)) for h in n.hosts}]


def switched_off(facts: Facts) -> list[Setting]:
    """Settings that forbid it, where there is a network that could have it."""
    if not any(isinstance(n.event, OfiProvider) or _lists_cards(n) for n in facts.job.notices):
        return []
    return [s for s in facts.job.environment if s.value.upper() in _SETTINGS.get(s.name, ())]


def allowed_on(facts: Facts) -> set[str]:
    """The hosts on which some NIC reaches GPU memory."""
    return hosts_in(facts.said(GdrDecision, lambda event: isinstance(event, GdrDecision) and event.enabled))


def is_sure(said: Iterable[Notice]) -> bool:
    """Whether the NICs are of a kind that can do it in nearly every machine."""
    said = list(said)
    return not any(notice.production == _WEAK for notice in said) and not any(map(_MAYBE_WITHOUT.fullmatch, nics(said)))


def _is_on_efa(facts: Facts) -> bool:
    return any(getattr(notice.event, "provider", None) == "efa" for notice in facts.said(OfiProvider))


def nics(said: Iterable[Notice]) -> list[str]:
    """The NICs that statements name."""
    found = (getattr(notice.event, "nic", None) for notice in said)
    return [str(name) for name in dict.fromkeys(found) if name is not None]


def in_ranges(names: Iterable[str]) -> str:
    """Names that end with a number, in short: ``mlx5_0-3, mlx5_bond_0``."""
    numbers: dict[str, list[int]] = {}
    for name in names:
        found = _NUMBERED.fullmatch(name)
        numbers.setdefault(found[1] if found else name, []).extend([int(found[2])] if found else [])
    return ", ".join(f"{name}{ranges(known)}" for name, known in numbers.items())


def _gpu(notice: Notice) -> object:
    return getattr(notice.event, "gpu", None)


def _is_without(notice: Notice) -> bool:
    return _WITHOUT.fullmatch(str(getattr(notice.event, "nic", None))) is not None


def _lists_cards(notice: Notice) -> bool:
    return isinstance(notice.event, NetDevices) and notice.event.net == "IB" and bool(notice.event.devices)
