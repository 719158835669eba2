"""NCCL_P2P_DISABLE or NCCL_P2P_LEVEL keeps GPUs of one host from talking directly."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, lines_of, unset, using, words_of
from nccl_inspect.judging.hardware.peer_to_peer import has_no_pairs, switched_off
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Selection, Setting
from nccl_inspect.util.wording import count, listed

RULE = Rule(
    name="p2p-disabled-by-env",
    category="intra-node path",
    severity="warning",
    title="P2P between the GPUs of a host is switched off by a setting",
    causes=("net-instead-of-p2p", "no-transport", "shm-segment-failed"),
    echoes=("nvlink-not-used", "shm-instead-of-p2p"),
)
_CHECK = (
    "nvidia-smi topo -p2p r   # if it was set against a hang: check this, IOMMU and ACS before removing it for good"
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge by effect: the setting counts when a local pair that could use P2P does not.

    Numbers and names of levels: src/graph/paths.cc.
    """
    settings = switched_off(facts)
    local = facts.paths("intra")
    slow = local.where(lambda kind: kind.transport != "P2P" and facts.allows_p2p(kind) is not False)
    if slow and settings:
        yield _proved(facts, settings, slow)
    elif settings and not local and not has_no_pairs(facts) and not (facts.platform and facts.platform.p2p is False):
        yield _suspected(facts, settings)


def _suspected(facts: Facts, settings: list[Setting]) -> Finding:
    """What is said where the log ends before connections between GPUs of a host."""
    words = words_of(settings)
    return RULE.clue(
        f"P2P between GPUs of a host is switched off by {words}",
        cause=f"{words} is set in the {listed(setting.source for setting in settings)}; often a work-around "
        "left over from a hang",
        impact="the log shows no connection within a host: its GPUs would use SHM or the network, even with NVLink",
        fix=[*unset(settings), _CHECK],
        confirm="Look for 'via SHM' or 'via NET' between ranks of one host, after the first collective.",
        ranks=facts.ranks_with(settings),
        hosts={host for setting in settings for host in setting.hosts},
        evidence=lines_of(settings),
    )


def _proved(facts: Facts, settings: list[Setting], slow: Selection) -> Finding:
    words = words_of(settings)
    return RULE.finding(
        f"{words} keeps GPUs of one host from talking directly",
        cause=f"{words} is set in the {listed(setting.source for setting in settings)}; often a work-around "
        "left over from a hang",
        impact=f"{count(len(slow), 'pair')} of one host {using(slow)} instead of P2P",
        fix=[*unset(settings), _CHECK],
        severity="error" if _on_nvlink(facts, slow) else "warning",
        ranks=facts.ranks_with(settings),
        evidence=lines_of(settings),
        paths=slow,
    )


def _on_nvlink(facts: Facts, pairs: Selection) -> bool:
    """Whether NVLink joins some of these pairs: what keeps it idle is as severe as its idleness, and so leads."""
    kinds = [kind.pair_class or ("NV" if facts.platform and facts.platform.nvlink else "") for kind in pairs.kinds]
    return any(kind.startswith("NV") for kind in kinds)
