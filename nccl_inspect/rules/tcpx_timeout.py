"""GPUDirect-TCPX or TCPXO times out while waiting for its receive daemon or for a peer."""

from nccl_inspect.judging.engine import Effects, Facts, Layer, Needs, Notice, Results, Rule, value
from nccl_inspect.judging.facts import hosts_in
from nccl_inspect.judging.networks import google_plugins
from nccl_inspect.judging.statements import message_of
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="tcpx-timeout",
    category="plugins",
    layer=Layer.LOSS,
    cloud="GCP",
    title="GPUDirect-TCPX or TCPXO times out waiting for its daemon or for a peer",
    may_cause=("no-tcpxo",),
    shows=("no-interface", "no-google-interface"),
    supersedes=("tcpxo-init-failed",),
)
_PLUGINS = ("NET/FasTrak", "NET/GPUDirectTCPX")
_RETURNS = "tcpxResult_t"
"""TCPX prints the signature of a function where other warnings have their source location."""
_TIMED_OUT = ("timed out", "timeout", "deadline exceeded")
_OF_DAEMON = ("daemon-ends", "daemon-gone")
_WAITS, _NOT_READY, _ABORTED = "tcpxo/fastrak-rxdm-not-ready", "tcpxo/fastrak-rxdm-timeout", "tcpxo/fastrak-init-failed"
_ABORTS = ("DEADLINE_EXCEEDED: ", "connect() error", "receive() error")


def judge(facts: Facts) -> Results:
    """Judge a daemon that does not become ready or ends, and warnings about timeouts.

    The TCPX plugin is recognized by its texts only: its WARN about a timeout counts.
    """
    own = facts.with_role("daemon-ends")
    gone = [*facts.with_role("daemon-gone"), *google_plugins.aborted(facts, *_ABORTS)]
    late = [notice for notice in facts.job.notices if _is_timeout(notice)]
    waiting = _waiting(facts)
    notices = [*own, *gone, *late, *waiting]
    works = google_plugins.works(facts)
    if facts.is_over():
        yield Effects(gone)  # the daemon may end before the job
    if not notices or (works and not facts.job.failed and (facts.is_over() or not (own or gone or late))):
        return
    ended = facts.job.failed or bool(facts.job.ended_by)
    if waiting and not (own or gone or late or ended):
        yield RULE.undecided(
            "the plugin waits for its receive daemon (RxDM); the log does not show whether it became ready",
            Needs("the lines up to 'RxDM ready', the first 'via NET/FasTrak', an error, or the end of the job"),
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
        notices=notices,
        fatal=ended or stops,
    )


def _waiting(facts: Facts) -> list[Notice]:
    """The lines of processes that wait for their daemon and do not report that it became ready."""
    ready = {process for notice in facts.notices("tcpxo/fastrak-rxdm-ready") for process in notice.processes}
    return [notice for notice in facts.notices(_WAITS) if not notice.processes or set(notice.processes) - ready]


def _is_timeout(notice: Notice) -> bool:
    """Whether a peer does not answer; messages about the daemon or the machine do not count."""
    own = notice.message.startswith(_PLUGINS) or (notice.location or "").startswith(_RETURNS)
    own = own or notice.rule == RULE.name
    if notice.level != "WARN" or not own or notice.rule not in ("", RULE.name):
        return False
    if not notice.roles.isdisjoint(_OF_DAEMON) or notice.production in (_WAITS, _ABORTED):
        return False
    text = notice.message.lower()
    return any(phrase in text for phrase in _TIMED_OUT)


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
        return f"GPUDirect-TCPX waited {seconds} s for {peer} on {interface} ({value(late[0], 'what')})"
    seconds = max(int(value(notice, "seconds") or 0) for notice in waiting)
    return f"GPUDirect-TCPXO is waiting for its receive daemon: not ready after {seconds} s"


def _text(notice: Notice) -> str:
    """The message without its head: the plugin's name and time, or the prefix of a line of the daemon."""
    return (
        message_of(notice).partition("] " if notice.production.startswith("tcpxo/rxdm-") else ": ")[2].strip()
        or notice.message
    )


def _cause(own: list[Notice], gone: list[Notice], late: list[Notice]) -> str:
    if own:
        return "the daemon's own log shows the reason: its container, or the pod, lacks something that it needs"
    if late and not gone:
        return "a peer does not answer: its daemon or its process is gone, it is late, or a firewall drops packets"
    if any("111" in message_of(notice) or "refused" in message_of(notice) for notice in gone):
        return (
            "nothing listens on the daemon's socket (connection refused): the sidecar with the receive daemon (RxDM) "
            "is not running, has ended, started too late, or is not in the job's network namespace"
        )
    return "the sidecar with the receive daemon (RxDM) is not running in this pod, has failed, or started too late"


def _fix(own: list[Notice], about_daemon: list[Notice]) -> list[str]:
    peers = "Allow all traffic between the nodes in the firewall of the GPU networks; each GPU NIC needs its own VPC."
    if own or about_daemon:
        return [
            google_plugins.DAEMON_LOG,
            "NCCL_FASTRAK_RXDM_INIT_TIMEOUT=300   # seconds, default 30; only if the daemon is healthy but starts late",
            google_plugins.NETWORKS_IN_POD,
            google_plugins.ONE_RELEASE,
        ]
    return [google_plugins.DAEMON_LOG, peers, google_plugins.ONE_RELEASE]
