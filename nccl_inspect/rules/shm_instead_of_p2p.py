"""GPUs of one host communicate through host memory."""

from nccl_inspect.event.types import Message, P2pRefused
from nccl_inspect.judging.engine import Facts, Finding, Needs, Notice, Results, Rule, first_evidence
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, first_lines, unset_steps, usage_of
from nccl_inspect.judging.hardware.peer_to_peer import disabling_settings, hiding_levels, limiting_levels
from nccl_inspect.judging.impact import ON_NVLINK, P2P, PCIE, SHM, Estimate, compared, estimate, p2p
from nccl_inspect.judging.remedies import GPUS_IN_POD, PCIE_ISOLATION
from nccl_inspect.model.job import Selection, Setting
from nccl_inspect.util.wording import count, listed

RULE = Rule(
    name="shm-instead-of-p2p",
    category="intra-node path",
    severity="warning",
    title="GPUs of one host communicate through host memory (SHM) instead of directly (P2P)",
    may_cause=("no-shm", "slow"),
    shows=("shm-path",),
)
_FINE_GRAIN = "rccl/rccl-fine-grain-missing"
_RCCL_WARNS = {
    _FINE_GRAIN: "HSA_FORCE_FINE_GRAIN_PCIE=1   # on all ranks",
    "rccl/rccl-host-setting-missing": 'GRUB_CMDLINE_LINUX="<existing options> iommu=pt"   # in /etc/default/grub; '
    "then update-grub and reboot",
    "rccl/rccl-numa-balancing": "sudo sysctl kernel.numa_balancing=0",
}
"""RCCL's warnings, with the remedy of each."""
_NO_FINE_GRAIN = (
    "RCCL itself reports that HSA_FORCE_FINE_GRAIN_PCIE=1 is missing: GPUs connected by PCIe need it for P2P (README "
    "of RCCL), those on xGMI do not. An IOMMU that translates addresses (no iommu=pt) also blocks P2P"
)
_DECIDE = Needs(platform=True, topology=True, others=("'nvidia-smi topo -p2p r' shows peer access",))


def judge(facts: Facts) -> Results:
    """Judge each local SHM pair by what the hardware supports, if known."""
    pairs = facts.paths("intra", "SHM")
    poor = pairs.where(lambda kind: facts.allows_p2p(kind) is False)
    rest = pairs.where(lambda kind: facts.allows_p2p(kind) is not False)
    if rest:
        is_possible = all(map(facts.allows_p2p, rest.kinds))
        yield _fault(facts, rest, is_possible)
        if not is_possible and not _has_nvlink_fabric(facts) and not disabling_settings(facts):
            yield RULE.undecided(
                "the log does not show how the GPUs of a host are connected, so they may not support P2P", _DECIDE
            )
    if poor and not rest:
        yield _expected(facts, poor)


def _fault(facts: Facts, pairs: Selection, possible: bool) -> Finding:
    refused = facts.with_event(P2pRefused)
    overridden = bool(disabling_settings(facts))
    fabric = _has_nvlink_fabric(facts)
    levels = [] if overridden or refused or fabric else limiting_levels(facts, pairs)
    warned = [] if overridden or refused or levels else facts.notices(*_RCCL_WARNS)
    confidence = (
        "certain"
        if overridden
        else facts.hardware
        if possible
        else "likely"
        if fabric or _lacks_fine_grain(warned)
        else "possible"
    )
    cause = (
        "see p2p-disabled-by-env"
        if overridden
        else _excluded(levels, possible)
        if levels
        else _NO_FINE_GRAIN
        if _lacks_fine_grain(warned)
        else _cause(facts, pairs, bool(refused), possible, fabric)
    )
    return RULE.finding(
        f"{count(len(pairs), 'pair')} of ranks on one host {usage_of(pairs)} instead of P2P",
        cause=cause,
        impact=_impact(facts, pairs),
        fix=[*unset_steps(levels), *_remedies(warned), *_steps(facts, bool(refused))],
        severity="error" if _on_nvlink(facts, pairs) else "warning",
        confidence=confidence,
        evidence=[
            *first_lines(pairs)[:3],
            *(n.evidence[0] for n in refused[:2]),
            *evidence_of_settings(levels, 1)[:2],
            *first_evidence(warned),
        ],
        paths=pairs,
    )


def _lacks_fine_grain(warned: list[Notice]) -> bool:
    return any(notice.production == _FINE_GRAIN for notice in warned)


def _remedies(warned: list[Notice]) -> list[str]:
    productions = {notice.production for notice in warned}
    return [step for production, step in _RCCL_WARNS.items() if production in productions]


def _excluded(levels: list[Setting], possible: bool) -> str:
    """The cause if a level allows less than NCCL's default."""
    words = as_shell(levels)
    if possible:
        return f"{words} excludes these pairs, which could use P2P: by default NCCL allows P2P up to PXB"
    return (
        f"suspect, not proved: {words} allows less than NCCL's default (PXB: also over PCIe switches). The log does "
        "not show how the GPUs are connected: those connected only through the CPU would use SHM anyway"
    )


def _steps(facts: Facts, refused: bool) -> list[str]:
    """The steps; if a setting is the cause, only how to remove it."""
    if off := disabling_settings(facts):
        return unset_steps(off)
    return [
        "rocm-smi --showtopo; rocm-smi --showtopoaccess   # which pairs have xGMI, and peer access?"
        if facts.is_rccl()
        else "nvidia-smi topo -m; nvidia-smi topo -p2p r   # which pairs have NVLink, and peer access?",
        *([] if refused else ["NCCL_P2P_LEVEL=SYS   # try it if peer access is OK and the pair is NODE or SYS"]),
        PCIE_ISOLATION,
        GPUS_IN_POD.replace("nvidia.com", "amd.com") if facts.is_rccl() else GPUS_IN_POD,
    ]


def _impact(facts: Facts, pairs: Selection) -> Estimate:
    """The bandwidth of host memory, and what P2P would give instead."""
    slow = f"every byte goes GPU -> host memory -> GPU: {SHM} bus bandwidth; "
    fast = p2p(facts.platform, _on_nvlink(facts, pairs) or _has_nvlink_fabric(facts))
    if fast is None:
        return estimate(f"{slow}no P2P measurements of such machines are published", SHM)
    if fast is P2P:
        better = f"P2P, if the hardware supports it, gives {PCIE} over PCIe and {ON_NVLINK} over NVLink"
        return estimate(slow + better, SHM, PCIE, ON_NVLINK)
    return estimate(f"{slow}P2P would give {fast}: {compared(SHM, fast)}", SHM, fast)


def _cause(facts: Facts, pairs: Selection, refused: bool, possible: bool, fabric: bool) -> str:
    if refused:
        return "the driver refuses peer access between the GPUs (see the evidence): virtualization, IOMMU or ACS"
    if possible:
        kinds = listed(kind.pair_class for kind in pairs.kinds if kind.pair_class)
        where = (
            f"the topology shows {kinds}" if kinds else f"{facts.platform.name if facts.platform else ''} supports P2P"
        )
        return (
            f"unknown: {where}, so P2P should work; IOMMU, ACS, a virtual machine, or containers that hide "
            "GPUs from each other"
        )
    if fabric:
        return "unknown: the GPUs report an NVLink fabric, so P2P should work; the log does not say why it is not used"
    return (
        "not proved: either the hardware does not support P2P (PCIe pairs across host bridges, GeForce cards, many "
        "virtual machines), or P2P is blocked"
    )


def _expected(facts: Facts, pairs: Selection) -> Finding:
    kinds = sorted({kind.pair_class for kind in pairs.kinds if kind.pair_class})
    why = (
        f"the pairs are {listed(kinds)} (through the CPU's PCIe host bridges)"
        if kinds
        else f"{facts.platform.name if facts.platform else 'this machine'} has neither NVLink nor P2P between its GPUs"
    )
    off, hiding = disabling_settings(facts), hiding_levels(facts)
    also = f", and {as_shell(off)} disables it on any hardware" if off else ""
    return RULE.finding(
        f"{count(len(pairs), 'pair')} on one host: SHM is the best path on this hardware",
        cause=f"{why}; NCCL does not use P2P there by default{also}",
        impact=estimate(
            f"none that can be fixed: host memory gives {SHM}; keep tensor parallelism small on such machines", SHM
        ),
        fix=[
            *(["unset NCCL_P2P_DISABLE   # first: while it is 1, NCCL does not read NCCL_P2P_LEVEL"] if hiding else []),
            "NCCL_P2P_LEVEL=SYS   # try and measure it if 'nvidia-smi topo -p2p r' shows OK; otherwise "
            "there is nothing to fix",
        ],
        severity="info",
        confidence=facts.hardware,
        evidence=[*first_lines(pairs)[:3], *evidence_of_settings(off, 1)[:2]],
        paths=pairs,
    )


def _on_nvlink(facts: Facts, pairs: Selection) -> bool:
    """Whether the pairs are known to have NVLink, where SHM is an order of magnitude slower."""
    kinds = [kind.pair_class for kind in pairs.kinds]
    if any(kinds):
        return any(kind is not None and kind.startswith("NV") for kind in kinds)
    return facts.platform is not None and bool(facts.platform.nvlink)


def _has_nvlink_fabric(facts: Facts) -> bool:
    """Hopper and later behind an NVSwitch report a fabric; PCIe cards do not (src/graph/topo.cc, 2.20 and later)."""
    return any(isinstance(notice.event, Message) for notice in facts.with_role("nvswitch"))
