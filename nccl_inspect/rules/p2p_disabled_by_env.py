"""NCCL_P2P_DISABLE or NCCL_P2P_LEVEL keeps GPUs of one host from talking directly."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, count, hosts_of, lines_of, listed, unset, using, words_of
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Path, Setting

RULE = Rule(
    name="p2p-disabled-by-env",
    category="intra-node path",
    severity="warning",
    title="P2P between the GPUs of a host is switched off by a setting",
)
_LEVELS_WITHOUT_P2P = {"LOC", "0"}
_CHECK = (
    "nvidia-smi topo -p2p r   # if it was set against a hang: check this, IOMMU and ACS before removing it for good"
)
_ALLOWED_BY = {
    **dict.fromkeys(("NVL", "NVB", "C2C"), ("NV",)),
    **dict.fromkeys(("PIX", "1"), ("NV", "PIX")),
}
"""Levels below NCCL's own choice, PXB, with the classes of pairs that they leave to P2P."""


def switched_off(facts: Facts) -> list[Setting]:
    """The settings that switch P2P off altogether."""
    return [setting for setting in facts.settings("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL") if _is_off(setting)]


def hiding_levels(facts: Facts) -> list[Setting]:
    """The settings under which NCCL does not read NCCL_P2P_LEVEL: ncclGetLevel in src/graph/paths.cc, 2.30.7."""
    return [setting for setting in switched_off(facts) if "NCCL_P2P_DISABLE" in setting.names]


def narrowed(facts: Facts, pairs: list[Path]) -> list[Setting]:
    """The levels that may keep these pairs from P2P which NCCL would use without them."""
    on_nvlink = bool(facts.platform and facts.platform.nvlink)
    kinds = [facts.pair_class(path) or ("NV" if on_nvlink else "") for path in pairs]
    levels = [(setting, _ALLOWED_BY.get(setting.value.upper())) for setting in facts.settings("NCCL_P2P_LEVEL")]
    return [setting for setting, allowed in levels if allowed and not all(kind.startswith(allowed) for kind in kinds)]


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge by effect: the setting counts when a local pair that could use P2P does not.

    Numbers and names of levels: src/graph/paths.cc.
    """
    settings = switched_off(facts)
    local = facts.paths("intra")
    slow = [path for path in local if path.transport != "P2P" and facts.allows_p2p(path) is not False]
    if slow and settings:
        yield _proved(facts, settings, slow)
    elif settings and not local and not has_no_pairs(facts) and not (facts.platform and facts.platform.p2p is False):
        yield _suspected(facts, settings)


def has_no_pairs(facts: Facts) -> bool:
    """Whether the log shows that each host has one rank."""
    comms = facts.job.communicators
    whole = all(len(comm.started) == comm.nranks or comm.local_ranks == 1 for comm in comms)
    return bool(comms) and whole and all(len(host.ranks) == 1 for host in facts.job.hosts)


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


def _proved(facts: Facts, settings: list[Setting], slow: list[Path]) -> Finding:
    words = words_of(settings)
    facts.mark(slow, RULE.name)
    return RULE.finding(
        f"{words} keeps GPUs of one host from talking directly",
        cause=f"{words} is set in the {listed(setting.source for setting in settings)}; often a work-around "
        "left over from a hang",
        impact=f"{count(len(slow), 'pair')} of one host {using(slow)} instead of P2P",
        fix=[*unset(settings), _CHECK],
        severity="error" if _on_nvlink(facts, slow) else "warning",
        ranks=facts.ranks_with(settings),
        hosts=hosts_of(slow),
        evidence=lines_of(settings),
    )


def _on_nvlink(facts: Facts, pairs: list[Path]) -> bool:
    """Whether NVLink joins some of these pairs: what keeps it idle is as severe as its idleness, and so leads."""
    kinds = [facts.pair_class(path) or ("NV" if facts.platform and facts.platform.nvlink else "") for path in pairs]
    return any(kind.startswith("NV") for kind in kinds)


def _is_off(setting: Setting) -> bool:
    if setting.name == "NCCL_P2P_DISABLE":
        return setting.value not in ("0", "")
    return setting.value.upper() in _LEVELS_WITHOUT_P2P
