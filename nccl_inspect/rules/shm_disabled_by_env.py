"""NCCL_SHM_DISABLE keeps ranks of one host from using shared memory."""

from nccl_inspect.judging.engine import Facts, Finding, Results, Rule
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, hosts_of_paths, unset_steps, usage_of
from nccl_inspect.judging.hardware.peer_to_peer import disabling_settings, has_no_pairs, local_over_net
from nccl_inspect.judging.impact import SHM, estimate, in_use
from nccl_inspect.model.job import Setting
from nccl_inspect.util.wording import count, listed

RULE = Rule(
    name="shm-disabled-by-env",
    category="intra-node path",
    title="Shared memory between ranks of a host is disabled by a setting",
    may_cause=("no-path", "net-path", "idle-nvlink", "slow"),
    shows=("setting",),
)
_LARGER = (
    "volumes: [{name: dshm, emptyDir: {medium: Memory}}]   # pod spec: mount a larger /dev/shm instead; "
    "docker run --shm-size=16g"
)


def judge(facts: Facts) -> Results:
    """Judge by effect: local pairs with P2P lose nothing; the others can only use the network."""
    settings = facts.enabled_settings("NCCL_SHM_DISABLE")
    if not settings:
        return
    slow = local_over_net(facts)
    net = in_use(slow, facts.platform)
    if not facts.paths("intra") and not has_no_pairs(facts) and _lacks_p2p(facts):
        yield _clue(facts, settings)
        return
    yield RULE.finding(
        f"{as_shell(settings)} " + ("forces ranks of one host onto the network" if slow else "is set"),
        cause=f"{as_shell(settings)} is set in the {listed(setting.source for setting in settings)}; often a "
        "workaround for a /dev/shm that is too small (shm-segment-failed)",
        impact=estimate(
            f"{count(len(slow), 'pair')} of one host {usage_of(slow)}, so the data leaves and re-enters the machine: "
            f"{f'{net} there, ' if net else ''}{SHM} over shared memory",
            *([net] if net else []),
            SHM,
        )
        if slow
        else "none in this log: no pair of one host uses the network",
        fix=[*unset_steps(settings), _LARGER],
        severity="error" if slow else "info",
        ranks=facts.ranks_with(settings),
        hosts=hosts_of_paths(slow) or {host for setting in settings for host in setting.hosts},
        evidence=evidence_of_settings(settings),
        paths=slow,
    )


def _lacks_p2p(facts: Facts) -> bool:
    """Whether P2P is disabled too or not supported, so that only the network is left."""
    return bool(disabling_settings(facts)) or bool(facts.platform and facts.platform.p2p is False)


def _clue(facts: Facts, settings: list[Setting]) -> Finding:
    """The clue if the log ends before the connections within a host."""
    both = [*settings, *disabling_settings(facts)]
    return RULE.clue(
        f"{as_shell(both)} {'force' if len(both) > 1 else 'forces'} ranks of one host onto the network",
        cause="shared memory is disabled, and P2P is disabled or not supported; often a workaround for a /dev/shm that "
        "is too small (shm-segment-failed)",
        impact="the log shows no connection within a host: data between its GPUs would leave and re-enter the machine",
        fix=[*unset_steps(settings), _LARGER],
        confirm="Look for 'via NET' between ranks of one host, after the first collective.",
        ranks=facts.ranks_with(settings),
        hosts={host for setting in settings for host in setting.hosts},
        evidence=evidence_of_settings(both, 1),
    )
