"""GPUs of one host talk through host memory."""

from collections.abc import Iterator

from nccl_inspect.event.types import Message, P2pRefused
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_lines, first_said, lines_of, unset, using, words_of
from nccl_inspect.judging.hardware.peer_to_peer import hiding_levels, narrowed, switched_off
from nccl_inspect.judging.impact import ON_NVLINK, P2P, PCIE, SHM, Estimate, compared, estimate, p2p
from nccl_inspect.judging.remedies import GPUS_IN_POD, PCIE_ISOLATION
from nccl_inspect.model.finding import Finding, Needs, NotJudged
from nccl_inspect.model.job import Notice, Selection, Setting
from nccl_inspect.util.wording import count, listed

RULE = Rule(
    name="shm-instead-of-p2p",
    category="intra-node path",
    severity="warning",
    title="GPUs of one host talk through host memory (SHM) instead of directly (P2P)",
    causes=("shm-segment-failed",),
)
_FINE_GRAIN = "rccl/rccl-fine-grain-missing"
_RCCL_WARNS = {
    _FINE_GRAIN: "HSA_FORCE_FINE_GRAIN_PCIE=1   # on all ranks",
    "rccl/rccl-host-setting-missing": 'GRUB_CMDLINE_LINUX="<what is there> iommu=pt"   # in /etc/default/grub, then '
    "update-grub and reboot",
    "rccl/rccl-numa-balancing": "sudo sysctl kernel.numa_balancing=0",
}
"""What RCCL warns of, and the cure."""
_NO_FINE_GRAIN = (
    "RCCL itself says that HSA_FORCE_FINE_GRAIN_PCIE=1 is missing: without it GPUs that PCIe joins have no P2P (README "
    "of RCCL); those on xGMI do without. An IOMMU that translates addresses (no iommu=pt) blocks P2P, too"
)
_DECIDE = Needs(platform=True, topology=True, others=("'nvidia-smi topo -p2p r' shows peer access",))


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge each local SHM pair by what the hardware allows, as far as that is known."""
    pairs = facts.paths("intra", "SHM")
    poor = pairs.where(lambda kind: facts.allows_p2p(kind) is False)
    rest = pairs.where(lambda kind: facts.allows_p2p(kind) is not False)
    if rest:
        possible = all(map(facts.allows_p2p, rest.kinds))
        yield _fault(facts, rest, possible)
        told = possible or _has_nvlink_fabric(facts)
        if not told and not switched_off(facts):
            yield RULE.undecided(
                "the log does not say what joins the GPUs of a host, so P2P may not be possible at all", _DECIDE
            )
    if poor and not rest:
        yield _expected(facts, poor)


def _fault(facts: Facts, pairs: Selection, possible: bool) -> Finding:
    refused = facts.said(P2pRefused)
    overridden = bool(switched_off(facts))
    fabric = _has_nvlink_fabric(facts)
    levels = [] if overridden or refused or fabric else narrowed(facts, pairs)
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
        else _left_out(levels, possible)
        if levels
        else _NO_FINE_GRAIN
        if _lacks_fine_grain(warned)
        else _cause(facts, pairs, bool(refused), possible, fabric)
    )
    return RULE.finding(
        f"{count(len(pairs), 'pair')} of ranks on one host {using(pairs)} instead of P2P",
        cause=cause,
        impact=_impact(facts, pairs),
        fix=[*unset(levels), *_heeded(warned), *_steps(facts, bool(refused))],
        severity="error" if _on_nvlink(facts, pairs) else "warning",
        confidence=confidence,
        evidence=[
            *first_lines(pairs)[:3],
            *(n.evidence[0] for n in refused[:2]),
            *lines_of(levels, 1)[:2],
            *first_said(warned),
        ],
        paths=pairs,
    )


def _lacks_fine_grain(warned: list[Notice]) -> bool:
    return any(notice.production == _FINE_GRAIN for notice in warned)


def _heeded(warned: list[Notice]) -> list[str]:
    """The cure of each warning."""
    said = {notice.production for notice in warned}
    return [step for production, step in _RCCL_WARNS.items() if production in said]


def _left_out(levels: list[Setting], possible: bool) -> str:
    """A level that allows less than NCCL's own choice."""
    words = words_of(levels)
    if possible:
        return f"{words} leaves these pairs out, which could use P2P: without it NCCL allows P2P up to PXB"
    return (
        f"suspect, not proved: {words} allows less than NCCL does without it (PXB: over PCIe switches too). The log "
        "does not say what joins the GPUs: between those that only the CPU joins it would be SHM anyway"
    )


def _steps(facts: Facts, refused: bool) -> list[str]:
    """What to do: where a setting or the driver is the cause, no more than that."""
    if off := switched_off(facts):
        return unset(off)
    return [
        "rocm-smi --showtopo; rocm-smi --showtopoaccess   # which pairs have xGMI, and peer access?"
        if facts.is_rccl()
        else "nvidia-smi topo -m; nvidia-smi topo -p2p r   # which pairs have NVLink, and peer access?",
        *([] if refused else ["NCCL_P2P_LEVEL=SYS   # try it where peer access is OK and the pair NODE or SYS"]),
        PCIE_ISOLATION,
        GPUS_IN_POD.replace("nvidia.com", "amd.com") if facts.is_rccl() else GPUS_IN_POD,
    ]


def _impact(facts: Facts, pairs: Selection) -> Estimate:
    """What host memory gives, and what P2P would give there."""
    slow = f"every byte goes GPU -> host memory -> GPU: {SHM} bus bandwidth; "
    fast = p2p(facts.platform, _on_nvlink(facts, pairs) or _has_nvlink_fabric(facts))
    if fast is None:
        return estimate(f"{slow}what P2P gives on such machines is not published", SHM)
    if fast is P2P:
        better = f"P2P, if the hardware has it, {PCIE} over PCIe and {ON_NVLINK} over NVLink"
        return estimate(slow + better, SHM, PCIE, ON_NVLINK)
    return estimate(f"{slow}P2P would give {fast}: {compared(SHM, fast)}", SHM, fast)


def _cause(facts: Facts, pairs: Selection, refused: bool, possible: bool, fabric: bool) -> str:
    if refused:
        return "the driver refuses peer access between the GPUs (see the evidence): virtualisation, IOMMU or ACS"
    if possible:
        kinds = listed(kind.pair_class for kind in pairs.kinds if kind.pair_class)
        where = f"the topology shows {kinds}" if kinds else f"a {facts.platform.name if facts.platform else ''} has P2P"
        return (
            f"unknown: {where}, so P2P should work; IOMMU, ACS, a virtual machine, or containers that hide "
            "GPUs from each other"
        )
    if fabric:
        return "unknown: the GPUs report an NVLink fabric, so P2P should work; the log does not say why it is not used"
    return (
        "not proved: either the hardware offers nothing better (PCIe pairs across host bridges, GeForce cards, many "
        "virtual machines), or P2P is blocked"
    )


def _expected(facts: Facts, pairs: Selection) -> Finding:
    kinds = sorted({kind.pair_class for kind in pairs.kinds if kind.pair_class})
    why = (
        f"the pairs are {listed(kinds)} (through the CPU's PCIe host bridges)"
        if kinds
        else f"{facts.platform.name if facts.platform else 'this machine'} has no NVLink and no P2P between its GPUs"
    )
    off, hiding = switched_off(facts), hiding_levels(facts)
    also = f", and {words_of(off)} switches it off whatever the hardware is" if off else ""
    return RULE.finding(
        f"{count(len(pairs), 'pair')} on one host: SHM is the best that this hardware offers",
        cause=f"{why}; NCCL does not use P2P there by default{also}",
        impact=estimate(
            f"none to mend: {SHM} is what host memory gives; keep tensor parallelism small on such machines", SHM
        ),
        fix=[
            *(["unset NCCL_P2P_DISABLE   # first: while it is 1, NCCL does not read NCCL_P2P_LEVEL"] if hiding else []),
            "NCCL_P2P_LEVEL=SYS   # may be tried and measured where 'nvidia-smi topo -p2p r' says OK; else "
            "there is nothing to fix",
        ],
        severity="info",
        confidence=facts.hardware,
        evidence=[*first_lines(pairs)[:3], *lines_of(off, 1)[:2]],
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
