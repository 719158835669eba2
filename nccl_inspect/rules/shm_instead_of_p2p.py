"""GPUs of one host communicate through host memory."""

from collections.abc import Iterator

from nccl_inspect.event.types import Message, P2pRefused
from nccl_inspect.judging.engine import Facts, first_evidence
from nccl_inspect.judging.facts import evidence_of_settings, first_lines
from nccl_inspect.judging.hardware.peer_to_peer import disabling_settings, hiding_levels, limiting_levels
from nccl_inspect.judging.impact import P2P, SHM, compared, p2p
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.judging.remedies import GPUS_IN_POD
from nccl_inspect.model.job import Selection

_FINE_GRAIN = "rccl/rccl-fine-grain-missing"
_RCCL_WARNS = {
    _FINE_GRAIN: "HSA_FORCE_FINE_GRAIN_PCIE=1   # on all ranks",
    "rccl/rccl-host-setting-missing": 'GRUB_CMDLINE_LINUX="<existing options> iommu=pt"   # in /etc/default/grub; '
    "then update-grub and reboot",
    "rccl/rccl-numa-balancing": "sudo sysctl kernel.numa_balancing=0",
}
"""RCCL's warnings, with the remedy of each."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find local SHM pairs, by what the hardware supports, if known.

    Hopper and later behind an NVSwitch report a fabric; PCIe cards do not (src/graph/topo.cc, 2.20 and later).
    """
    pairs, off = facts.paths("intra", "SHM"), disabling_settings(facts)
    poor = pairs.where(lambda kind: facts.allows_p2p(kind) is False)
    rest = pairs.where(lambda kind: facts.allows_p2p(kind) is not False)
    if not rest:
        if poor:
            named = _hardware(facts, poor) | {"poor": True, "off": off, "hiding": hiding_levels(facts)}
            yield Hit(named=named, evidence=[*first_lines(poor)[:3], *evidence_of_settings(off, 1)[:2]], paths=poor)
        return
    fabric = any(isinstance(notice.event, Message) for notice in facts.with_role("nvswitch"))
    refused, possible = facts.with_event(P2pRefused), all(map(facts.allows_p2p, rest.kinds))
    levels = [] if off or refused or fabric else limiting_levels(facts, rest)
    warned = [] if off or refused or levels else facts.notices(*_RCCL_WARNS)
    productions = {notice.production for notice in warned}
    named = _hardware(facts, rest)
    fast = p2p(facts.platform, bool(named["on NVLink"]) or fabric)
    named |= {
        "off": off,
        "levels": levels,
        "refused": refused,
        "possible": possible,
        "sure": possible and facts.hardware == "certain",
        "from a list": possible,
        "fabric": fabric,
        "without fine grain": _FINE_GRAIN in productions,
        "remedies": [] if off else [step for production, step in _RCCL_WARNS.items() if production in productions],
        "AMD": facts.is_rccl(),
        "pod": GPUS_IN_POD.replace("nvidia.com", "amd.com") if facts.is_rccl() else GPUS_IN_POD,
        "unmeasured": fast is None,
        "unknown": fast is P2P,
        "fast": fast,
        "less": compared(SHM, fast) if fast and fast is not P2P else "",
    }
    refusals, settings = first_evidence(refused[:2]), evidence_of_settings(levels, 1)[:2]
    shown = [*first_lines(rest)[:3], *refusals, *settings, *first_evidence(warned)]
    yield Hit(named=named, evidence=shown, paths=rest)
    if not possible and not fabric and not off:
        yield Hit(named={"question": True})


def _hardware(facts: Facts, pairs: Selection) -> dict[str, object]:
    """Return what is known of the links between these pairs: where they have NVLink, SHM is far slower."""
    machine, kinds = facts.platform, {kind.pair_class for kind in pairs.kinds if kind.pair_class}
    on_nvlink = any(kind.startswith("NV") for kind in kinds) if kinds else machine is not None and bool(machine.nvlink)
    named = {"kinds": sorted(kinds), "machine": machine.name if machine else "this machine", "on NVLink": on_nvlink}
    return named | {"sure": facts.hardware == "certain", "from a list": True}
