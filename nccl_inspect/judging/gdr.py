"""Statements about GPUDirect RDMA: of NCCL, plugins and settings, and the distances between NIC and GPU."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.event.types import GdrDecision, OfiProvider
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.networks import card_lists
from nccl_inspect.model.job import Notice, Setting
from nccl_inspect.model.versions import order
from nccl_inspect.util.patterns import compile_later

_WEAK = "aws-ofi-nccl/ofi-gdr-not-supported"
"""The plugin reports this for every provider without it; EFA has it on some instance types."""
_WITHOUT = compile_later(r"roce(?:P2)?p1s0f[01]")
"""The NICs of DGX Spark (GB10) as Linux names them: that machine has no GPUDirect RDMA."""
_MAYBE_WITHOUT = compile_later(r"(?:rdmap|efa_).*")
"""EFA devices: some instance types have GPUDirect RDMA, others do not."""


def gdr_refusals(facts: Facts) -> list[Notice]:
    """Return NICs that cannot access GPU memory, according to their driver or the plugin."""
    on_efa = facts.with_event(OfiProvider, lambda event: event.provider == "efa")
    notices = [*facts.with_role("gdr-refused"), *(facts.notices(_WEAK) if on_efa else ())]
    notices = [notice for notice in notices if "NET/Socket" not in notice.message]
    return [notice for notice in notices if not _WITHOUT.fullmatch(str(getattr(notice.event, "nic", None)))]


def gpus_too_far(facts: Facts) -> list[Notice]:
    """GPUs that are too far from every measured NIC: to be far from some and near one is normal."""
    decisions = [(one, one.event) for one in facts.with_event(GdrDecision) if isinstance(one.event, GdrDecision)]
    measured = [(notice, event) for notice, event in decisions if event.distance is not None]
    near = {(host, event.gpu) for notice, event in measured if event.enabled for host in notice.hosts}
    far = [(notice, event) for notice, event in measured if not event.enabled]
    return [notice for notice, event in far if near.isdisjoint((host, event.gpu) for host in notice.hosts)]


def settings_without_gdr(facts: Facts) -> list[Setting]:
    """Settings that disable it, if there is a network that could use it."""
    if not (facts.with_event(OfiProvider) or card_lists(facts) or facts.inter_host_rdma_paths()):
        return []
    off = {"NCCL_NET_GDR_LEVEL": ("LOC", "0"), "FI_EFA_USE_DEVICE_RDMA": ("0",)}
    return [one for one in facts.job.environment if one.value.upper() in off.get(one.name, ())]


def is_sure(notices: Iterable[Notice]) -> bool:
    """Return whether the NICs are of a kind that supports it in nearly every machine."""
    notices = list(notices)
    is_weak = any(notice.production == _WEAK for notice in notices)
    return not is_weak and not any(map(_MAYBE_WITHOUT.fullmatch, named_nics(notices)))


def named_nics(notices: Iterable[Notice]) -> list[str]:
    """Return the NICs that statements name."""
    names = (getattr(notice.event, "nic", None) for notice in notices)
    return [str(name) for name in dict.fromkeys(names) if name is not None]


_CLASSES = (
    ((2, 27, 5), "LOC NVL NVB C2C PIX PXB P2C PXN PHB SYS"),
    ((2, 27), "LOC NVL NVB C2C PIX PXB PXN P2C PHB SYS"),
    ((2, 26), "LOC NVL NVB C2C PIX PXB PXN PHB SYS"),
    ((2, 12), "LOC NVL NVB PIX PXB PXN PHB SYS"),
    ((2, 8), "LOC NVL NVB PIX PXB PHB SYS"),
    ((2, 6), "LOC NVL PIX PXB PHB SYS"),
)
"""The classes from near to far, and the first release with this numbering."""


def first_too_far(reasons: Iterable[Notice]) -> GdrDecision | None:
    """Return the first distance that is too long; None if any reason is missing support."""
    decisions = [(notice.roles, notice.event) for notice in reasons if isinstance(notice.event, GdrDecision)]
    measured = all("gdr-too-far" in roles for roles, _ in decisions)
    return decisions[0][1] if decisions and measured else None


def distance_in_words(far: GdrDecision, facts: Facts) -> str:
    """Return the distance and its limit in words, with the names of the numbers if the releases agree about them."""
    names = {  # an inferred release may be any of a range
        "" if "inferred" in release else next((names for first, names in _CLASSES if order(release) >= first), "")
        for release in facts.job.nccl_versions
    }
    words = []
    for number in (far.distance, far.limit):
        known = [some.split() for some in names if number is not None]
        labels = {own[number] if number < len(own) else "" for own in known if number is not None}
        label = labels.pop() if len(labels) == 1 else ""
        words.append(f"{number} ({label})" if label else f"{number}")
    apart = f"GPU {far.gpu} and NIC {far.nic} are farther apart than NCCL allows"
    return f"{apart}: distance {words[0]}, and the limit is {words[1]}"
