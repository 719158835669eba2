"""The offload engine of the machine refuses GPUDirect-TCPXO, or the connection to it breaks."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Effects, Result, Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.networks import google_plugins
from nccl_inspect.judging.statements import value, words
from nccl_inspect.model.job import Notice

RULE = Rule(
    name="tcpxo-offload-failed",
    category="plugins",
    cloud="GCP",
    severity="error",
    title="The offload engine of the machine fails GPUDirect-TCPXO",
    supersedes=("tcpxo-init-failed",),
)
_MEMORY = ("registration", "daemon-memory", "daemon-request")


def judge(facts: Facts) -> Iterator[Result]:
    """Judge what fails between plugin and offload engine; at the end of a job the connection is just closed."""
    told = list(facts.leading_to(RULE.name))
    told += google_plugins.aborted(
        facts, "Failed to initialize DXS", "getaddrinfo failed", "bind failed", "SctpHandler"
    )
    if facts.is_over():
        yield Effects(told)  # connections that are closed under way
    if not told or (google_plugins.works(facts) and not facts.job.failed):
        return
    first = told[0]
    yield RULE.finding(
        f"GPUDirect-TCPXO: {_what(first)}",
        cause="the daemon cannot map or register GPU memory for the NIC"
        if _is_about_memory(first)
        else "the container may not bind to the interface of the NIC"
        if first.production == "tcpxo/fastrak-dxs-socket"
        else "the offload engine (DXS) of this machine does not answer, or refuses: the machine, its NIC, or a daemon "
        "that ended is at fault",
        impact="this rank cannot connect, or its transfers fail: the job stops",
        fix=[
            google_plugins.DAEMON_LOG,
            "Restart daemon and job; where it stays with the machine, drain the node and have Google look at it.",
            *(_BIND if first.production == "tcpxo/fastrak-dxs-socket" else []),
            google_plugins.ONE_RELEASE,
        ],
        confidence="likely",
        notices=told,
        fatal=True,
    )


_BIND = ["securityContext: {capabilities: {add: [NET_RAW]}}   # pod spec, of the container"]


def _is_about_memory(notice: Notice) -> bool:
    return any(part in notice.production for part in _MEMORY)


def _what(notice: Notice) -> str:
    text = google_plugins.reason(notice) or words(notice).partition(": ")[2]
    status = value(notice, "status")
    return (
        text
        if notice.production != "tcpxo/fastrak-dxs-failed" or not status
        else f"the offload engine refuses it ({status})"
    )
