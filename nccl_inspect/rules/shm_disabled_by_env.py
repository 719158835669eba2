"""NCCL_SHM_DISABLE keeps ranks of one host from using shared memory."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, hosts_of, lines_of, unset, using, words_of
from nccl_inspect.judging.hardware.peer_to_peer import has_no_pairs, local_over_net, switched_off
from nccl_inspect.judging.impact import SHM, SOCKET, estimate
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Setting
from nccl_inspect.util.wording import count, listed

RULE = Rule(
    name="shm-disabled-by-env",
    category="intra-node path",
    severity="error",
    title="Shared memory between ranks of a host is switched off by a setting",
    causes=("no-transport",),
    echoes=("net-instead-of-p2p", "nvlink-not-used"),
)


_LARGER = (
    "volumes: [{name: dshm, emptyDir: {medium: Memory}}]   # pod spec: a larger /dev/shm instead, mounted there; "
    "docker run --shm-size=16g"
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge by effect: with P2P for all local pairs nothing is lost; the others are left with the network."""
    settings = facts.switched_on("NCCL_SHM_DISABLE")
    if not settings:
        return
    slow = local_over_net(facts)
    if not facts.paths("intra") and not has_no_pairs(facts) and _lacks_p2p(facts):
        yield _suspected(facts, settings)
        return
    yield RULE.finding(
        f"{words_of(settings)} " + ("leaves ranks of one host with the network" if slow else "is set"),
        cause=f"{words_of(settings)} is set in the {listed(setting.source for setting in settings)}; often to get "
        "around a /dev/shm that is too small (shm-segment-failed)",
        impact=estimate(
            f"{count(len(slow), 'pair')} of one host {using(slow)}, which leaves and enters the machine: {SOCKET} over "
            f"Socket, against {SHM} over shared memory",
            SOCKET,
            SHM,
        )
        if slow
        else "none in this log: no pair of one host uses the network",
        fix=[*unset(settings), _LARGER],
        severity="error" if slow else "info",
        ranks=facts.ranks_with(settings),
        hosts=hosts_of(slow) or {host for setting in settings for host in setting.hosts},
        evidence=lines_of(settings),
        paths=slow,
    )


def _lacks_p2p(facts: Facts) -> bool:
    """Whether P2P is off as well, or the machine has none: nothing but the network is left then."""
    return bool(switched_off(facts)) or bool(facts.platform and facts.platform.p2p is False)


def _suspected(facts: Facts, settings: list[Setting]) -> Finding:
    """What is said where the log ends before connections between GPUs of a host."""
    both = [*settings, *switched_off(facts)]
    return RULE.clue(
        f"{words_of(both)} {'leave' if len(both) > 1 else 'leaves'} ranks of one host with the network",
        cause="shared memory is switched off, and P2P is off or the machine has none; often to get around a /dev/shm "
        "that is too small (shm-segment-failed)",
        impact="the log shows no connection within a host: data between its GPUs would leave and enter the machine",
        fix=[*unset(settings), _LARGER],
        confirm="Look for 'via NET' between ranks of one host, after the first collective.",
        severity="warning",
        ranks=facts.ranks_with(settings),
        hosts={host for setting in settings for host in setting.hosts},
        evidence=lines_of(both, 1),
    )
