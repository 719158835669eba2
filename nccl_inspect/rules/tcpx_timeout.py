"""GPUDirect-TCPX or TCPXO waits for its receive daemon, or for a peer, in vain."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Effects, Result, Rule
from nccl_inspect.judging.facts import Facts, hosts_in
from nccl_inspect.judging.networks import google_plugins
from nccl_inspect.judging.statements import value, words
from nccl_inspect.model.finding import Needs
from nccl_inspect.model.job import Notice
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="tcpx-timeout",
    category="plugins",
    cloud="GCP",
    severity="error",
    title="GPUDirect-TCPX or TCPXO times out waiting for its daemon or for a peer",
    causes=("tcpxo-no-interface", "tcpxo-offload-failed"),
    supersedes=("tcpxo-init-failed",),
)
_PLUGINS = ("NET/FasTrak", "NET/GPUDirectTCPX")
_RETURNS = "tcpxResult_t"
"""TCPX prints the signature of a function where other warnings have their place in the source."""
_TIMED_OUT = ("timed out", "timeout", "deadline exceeded")
_OF_DAEMON = ("daemon-ends", "daemon-gone")
_WAITS, _NOT_READY, _ABORTED = "tcpxo/fastrak-rxdm-not-ready", "tcpxo/fastrak-rxdm-timeout", "tcpxo/fastrak-init-failed"
_ABORTS = ("DEADLINE_EXCEEDED: ", "connect() error", "receive() error")


def judge(facts: Facts) -> Iterator[Result]:
    """Judge the daemon that does not become ready or ends, and warnings about time-outs.

    The plugin of TCPX is read by its texts only: a WARN of it about a time-out counts.
    """
    own = facts.with_role("daemon-ends")
    gone = [*facts.with_role("daemon-gone"), *google_plugins.aborted(facts, *_ABORTS)]
    late = [notice for notice in facts.job.notices if _is_timeout(notice)]
    waiting = _waiting(facts)
    told = [*own, *gone, *late, *waiting]
    works = google_plugins.works(facts)
    if facts.is_over():
        yield Effects(gone)  # the daemon may end before the job
    if not told or (works and not facts.job.failed and (facts.is_over() or not (own or gone or late))):
        return
    ended = facts.job.failed or bool(facts.job.ended_by)
    if waiting and not (own or gone or late or ended):
        yield RULE.undecided(
            "the plugin waits for its receive daemon (RxDM); whether it became ready is not in the log",
            Needs(
                "the lines up to 'RxDM ready', to the first 'via NET/FasTrak', to an error, or to the end of the job"
            ),
        )
        return
    stops = not works and bool(own or gone or late)
    yield RULE.finding(
        _summary(own, gone, late, waiting),
        cause=_cause(own, gone, late),
        impact="ranks cannot connect over the fast network: the job does not start, or stops",
        fix=_fix(own, gone or waiting),
        severity="error" if ended or not works else "warning",
        confidence="certain" if own or facts.notices(_NOT_READY) else "likely",
        notices=told,
        fatal=ended or stops,
    )


def _waiting(facts: Facts) -> list[Notice]:
    """Where a process waits for its daemon, and does not say that it became ready."""
    ready = {process for notice in facts.notices("tcpxo/fastrak-rxdm-ready") for process in notice.processes}
    return [notice for notice in facts.notices(_WAITS) if not notice.processes or set(notice.processes) - ready]


def _is_timeout(notice: Notice) -> bool:
    """Whether a peer does not answer; what the plugin says of its daemon and its machine is none of it."""
    own = notice.message.startswith(_PLUGINS) or (notice.location or "").startswith(_RETURNS)
    own = own or notice.rule == RULE.name
    if notice.level != "WARN" or not own or notice.rule not in ("", RULE.name):
        return False
    if not notice.roles.isdisjoint(_OF_DAEMON) or notice.production in (_WAITS, _ABORTED):
        return False
    text = notice.message.lower()
    return any(said in text for said in _TIMED_OUT)


def _summary(own: list[Notice], gone: list[Notice], late: list[Notice], waiting: list[Notice]) -> str:
    if own:
        return f"the receive daemon of GPUDirect-TCPXO (RxDM) ends: {_text(own[0])}"
    if gone:
        where = listed(
            sorted({str(value(notice, "host")) for notice in gone if value(notice, "host")} or hosts_in(gone))
        )
        return f"the receive daemon of GPUDirect-TCPXO (RxDM) does not answer{f' on {where}' if where else ''}"
    if late:
        waited = value(late[0], "nanos")
        if waited is None:
            return f"GPUDirect-TCPX(O) timed out: {_text(late[0])}"
        peer, interface = value(late[0], "peer"), value(late[0], "interface")
        seconds = int(waited) // 10**9
        return f"GPUDirect-TCPX waits {seconds} s for {peer} on {interface} ({value(late[0], 'what')})"
    seconds = max(int(value(notice, "seconds") or 0) for notice in waiting)
    return f"GPUDirect-TCPXO waits for its receive daemon: not ready after {seconds} s"


def _text(notice: Notice) -> str:
    """What was said without what stands in front: the plugin's name and time, or the head of a line of the daemon."""
    return (
        words(notice).partition("] " if notice.production.startswith("tcpxo/rxdm-") else ": ")[2].strip()
        or notice.message
    )


def _cause(own: list[Notice], gone: list[Notice], late: list[Notice]) -> str:
    if own:
        return "the daemon's own log names it; what it lacks is missing in its container, or in the pod"
    if late and not gone:
        return "a peer does not answer: its daemon or its process is gone, it is late, or a firewall drops the packets"
    if any("111" in words(notice) or "refused" in words(notice) for notice in gone):
        return (
            "nobody listens on the daemon's socket (connection refused): the side-car with the receive daemon (RxDM) "
            "does not run, has ended, began too late, or is in another network namespace than the job"
        )
    return "the side-car with the receive daemon (RxDM) does not run in this pod, has failed, or began too late"


def _fix(own: list[Notice], about_daemon: list[Notice]) -> list[str]:
    peers = "Let the firewall of the GPU networks pass all traffic between the nodes; each GPU NIC needs its own VPC."
    if own or about_daemon:
        return [
            google_plugins.DAEMON_LOG,
            "NCCL_FASTRAK_RXDM_INIT_TIMEOUT=300   # seconds; only where the daemon is well and begins late (30)",
            google_plugins.NETWORKS_IN_POD,
            google_plugins.ONE_RELEASE,
        ]
    return [google_plugins.DAEMON_LOG, peers, google_plugins.ONE_RELEASE]
