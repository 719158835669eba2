"""The offload engine of the machine refuses GPUDirect-TCPXO, or the connection to it breaks."""

from nccl_inspect.judging.engine import Effects, Facts, Notice, Results, Rule, value
from nccl_inspect.judging.networks import google_plugins
from nccl_inspect.judging.statements import message_of

RULE = Rule(
    name="tcpxo-offload-failed",
    category="plugins",
    cloud="GCP",
    title="The offload engine of the machine does not work for GPUDirect-TCPXO",
    shows=("no-tcpxo",),
    supersedes=("tcpxo-init-failed",),
)
_MEMORY = ("registration", "daemon-memory", "daemon-request")


def judge(facts: Facts) -> Results:
    """Judge failures between plugin and offload engine; at the end of a job, connections close normally."""
    errors = list(facts.errors_of_rule(RULE.name))
    errors += google_plugins.aborted(
        facts, "Failed to initialize DXS", "getaddrinfo failed", "bind failed", "SctpHandler"
    )
    if facts.is_over():
        yield Effects(errors)  # connections that closed in between
    if not errors or (google_plugins.works(facts) and not facts.job.failed):
        return
    first = errors[0]
    yield RULE.finding(
        f"GPUDirect-TCPXO: {_what(first)}",
        cause="the daemon cannot map or register GPU memory for the NIC"
        if any(part in first.production for part in _MEMORY)
        else "the container is not allowed to bind to the NIC's interface"
        if first.production == "tcpxo/fastrak-dxs-socket"
        else "the offload engine (DXS) of this machine does not answer, or refuses: the fault is in the machine or its "
        "NIC, or a daemon ended",
        impact="this rank cannot connect, or its transfers fail: the job stops",
        fix=[
            google_plugins.DAEMON_LOG,
            "Restart the daemon and the job; if the machine fails again, drain the node and contact Google support.",
            *(_BIND if first.production == "tcpxo/fastrak-dxs-socket" else []),
            google_plugins.ONE_RELEASE,
        ],
        confidence="likely",
        notices=errors,
        fatal=True,
    )


_BIND = ["securityContext: {capabilities: {add: [NET_RAW]}}   # pod spec, of the container"]


def _what(notice: Notice) -> str:
    text = google_plugins.reason(notice) or message_of(notice).partition(": ")[2]
    status = value(notice, "status")
    return (
        text
        if notice.production != "tcpxo/fastrak-dxs-failed" or not status
        else f"the offload engine refuses it ({status})"
    )
