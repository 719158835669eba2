"""GPUDirect-TCPX or TCPXO waits for its receive daemon, or for a peer, in vain."""

from collections.abc import Iterator

from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, ranks_in
from nccl_inspect.rules.statements import value

RULE = Rule(
    name="tcpx-timeout",
    category="plugins",
    severity="error",
    title="GPUDirect-TCPX or TCPXO waits in vain for its daemon or for a peer",
)
_PLUGINS = ("NET/FasTrak", "NET/GPUDirectTCPX")
_RETURNS = "tcpxResult_t"
"""TCPX prints the signature of a function where other warnings have their place in the source."""
_TIMED_OUT = ("timed out", "timeout", "deadline exceeded")


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge the daemon that does not become ready, releases that differ, and warnings about time-outs.

    The plugins are closed: besides the lines that are known, a WARN of theirs about a time-out counts.
    """
    waiting = facts.notices("fastrak-rxdm-not-ready")
    differing = facts.notices("fastrak-version-mismatch")
    late = [notice for notice in facts.job.notices if _is_timeout(notice)]
    told = [*differing, *late, *waiting]
    works = any(path.net is not None and path.net.startswith(("FasTrak", "GPUDirectTCPX")) for path in facts.leaving())
    if not told or (works and not late and not facts.job.failed):
        return
    ended = facts.job.failed or bool(facts.job.ended_by)
    if waiting and not (differing or late or ended):
        yield RULE.undecided(
            "the plugin waits for its receive daemon (RxDM); whether it became ready is not in the log",
            "the lines up to the first 'via NET/FasTrak', to an error, or to the end of the job",
        )
        return
    yield RULE.finding(
        _summary(differing, late, waiting),
        cause="plugin and receive daemon (RxDM), or two nodes, have different releases"
        if differing
        else "a peer does not answer: its daemon or its process is gone, it is late, or a firewall drops the packets"
        if late
        else "the side-car with the receive daemon (RxDM) does not run in this pod, has failed, or began too late",
        impact="ranks cannot connect over the fast network: the job does not start, or stops",
        fix=[
            "kubectl logs <pod> -c tcpxo-daemon   # is the side-car up? (TCPX: tcpx-daemon)",
            "Take plugin, daemon image and NCCL of one release of Google's installer, the same on all nodes.",
            "Let the firewall of the GPU networks pass all traffic between the nodes; each GPU NIC needs its own VPC.",
        ],
        severity="error" if ended or not works else "warning",
        confidence="certain" if differing else "likely",
        ranks=ranks_in(told),
        hosts=hosts_in(told),
        evidence=first_said(told),
        fatal=ended,
    )


def _is_timeout(notice: Notice) -> bool:
    text = notice.message.lower()
    own = notice.message.startswith(_PLUGINS) or (notice.location or "").startswith(_RETURNS)
    return notice.level == "WARN" and own and any(words in text for words in _TIMED_OUT)


def _summary(differing: list[Notice], late: list[Notice], waiting: list[Notice]) -> str:
    if differing:
        return f"GPUDirect-TCPXO: releases differ ({value(differing[0], 'detail')})"
    if late:
        waited = value(late[0], "nanos")
        if waited is None:
            return f"GPUDirect-TCPX(O) timed out: {late[0].message}"
        peer, interface = value(late[0], "peer"), value(late[0], "interface")
        seconds = int(waited) // 10**9
        return f"GPUDirect-TCPX waits {seconds} s for {peer} on {interface} ({value(late[0], 'what')})"
    seconds = max(int(value(notice, "seconds") or 0) for notice in waiting)
    return f"GPUDirect-TCPXO waits for its receive daemon: not ready after {seconds} s"
