"""NCCL_P2P_DISABLE or NCCL_P2P_LEVEL keeps GPUs of one host from communicating directly."""

from nccl_inspect.event.types import P2pRefused
from nccl_inspect.judging.engine import Facts, Finding, Results, Rule
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, unset_steps, usage_of
from nccl_inspect.judging.hardware.peer_to_peer import disabling_settings, has_no_pairs, limiting_levels
from nccl_inspect.model.job import Selection, Setting
from nccl_inspect.util.wording import count, listed

RULE = Rule(
    name="p2p-disabled-by-env",
    category="intra-node path",
    severity="warning",
    title="P2P between the GPUs of a host is disabled by a setting",
    may_cause=("net-path", "no-path", "no-shm", "idle-nvlink", "shm-path", "slow"),
    shows=("setting",),
)
_CHECK = "nvidia-smi topo -p2p r   # if it was set to avoid a hang: check this, IOMMU and ACS before removing it"


def judge(facts: Facts) -> Results:
    """Judge by effect: the setting counts when a local pair that could use P2P does not.

    Numbers and names of levels: src/graph/paths.cc.
    """
    settings = disabling_settings(facts)
    local = facts.paths("intra")
    slow = local.where(lambda kind: kind.transport != "P2P" and facts.allows_p2p(kind) is not False)
    if slow and settings:
        yield _finding(facts, settings, slow)
    elif (levels := limiting_levels(facts, slow)) and len(slow) < len(local) and not facts.with_event(P2pRefused):
        yield _limit(facts, levels, slow)  # other pairs of the machine use P2P
    elif settings and not local and not has_no_pairs(facts) and not (facts.platform and facts.platform.p2p is False):
        yield _clue(facts, settings)


def _clue(facts: Facts, settings: list[Setting]) -> Finding:
    """The clue if the log ends before the connections within a host."""
    words = as_shell(settings)
    return RULE.clue(
        f"P2P between GPUs of a host is disabled by {words}",
        cause=f"{words} is set in the {listed(setting.source for setting in settings)}; often a workaround "
        "left over from a hang",
        impact="the log shows no connection within a host: its GPUs would use SHM or the network, even with NVLink",
        fix=[*unset_steps(settings), _CHECK],
        confirm="Look for 'via SHM' or 'via NET' between ranks of one host, after the first collective.",
        ranks=facts.ranks_with(settings),
        hosts={host for setting in settings for host in setting.hosts},
        evidence=evidence_of_settings(settings),
    )


def _finding(facts: Facts, settings: list[Setting], slow: Selection) -> Finding:
    words = as_shell(settings)
    return RULE.finding(
        f"{words} keeps GPUs of one host from communicating directly",
        cause=f"{words} is set in the {listed(setting.source for setting in settings)}; often a workaround "
        "left over from a hang",
        impact=f"{count(len(slow), 'pair')} of one host {usage_of(slow)} instead of P2P",
        fix=[*unset_steps(settings), _CHECK],
        severity="error" if _on_nvlink(facts, slow) else "warning",
        ranks=facts.ranks_with(settings),
        evidence=evidence_of_settings(settings),
        paths=slow,
    )


def _limit(facts: Facts, levels: list[Setting], slow: Selection) -> Finding:
    words = as_shell(levels)
    return RULE.finding(
        f"{words} limits P2P to GPUs that are closer to each other than by NCCL's own choice",
        cause=f"{words} is set in the {listed(setting.source for setting in levels)}; NCCL's own choice is PXB: also "
        "over several PCIe switches",
        impact=f"{count(len(slow), 'pair')} of one host {usage_of(slow)} instead of P2P, which other pairs use. Pairs "
        "that only the CPU connects would do so anyway",
        fix=[
            *unset_steps(levels),
            "nvidia-smi topo -m   # PXB: these pairs could use P2P; NODE or SYS: they could not",
        ],
        confidence="likely",
        ranks=facts.ranks_with(levels),
        evidence=evidence_of_settings(levels),
        paths=slow,
    )


def _on_nvlink(facts: Facts, pairs: Selection) -> bool:
    """Whether NVLink connects some of these pairs: disabling it is as severe as not using it."""
    kinds = [kind.pair_class or ("NV" if facts.platform and facts.platform.nvlink else "") for kind in pairs.kinds]
    return any(kind.startswith("NV") for kind in kinds)
