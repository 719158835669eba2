"""aws-ofi-nccl finds a provider but fails to initialize."""

from __future__ import annotations

from operator import attrgetter

from nccl_inspect.event.types import OfiProvider
from nccl_inspect.judging import propagated_errors
from nccl_inspect.judging.engine import Facts, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import first_lines
from nccl_inspect.judging.impact import Outcome
from nccl_inspect.judging.networks import slingshot
from nccl_inspect.judging.networks.fabrics import tcp_paths
from nccl_inspect.judging.remedies import EFA_CHECK, EFA_RELEASES, LIBFABRIC_SAYS, LOCKED_MEMORY_IN_POD, RDMA_IN_DOCKER
from nccl_inspect.util.records import Frozen, frozen

RULE = Rule(
    name="efa-init-failed",
    category="plugins",
    cloud="AWS",
    title="aws-ofi-nccl fails to initialize",
    may_cause=("no-efa",),
    shows=("no-locked-memory",),
    supersedes=("memory-registration-failed",),
    nest_under_effect=True,
    local=True,
)
_NO_GDR = "aws-ofi-nccl/ofi-gdr-disabled-on-capable"
_NO_MEMORY = -12
_CONNECTING = ("transport/net.cc", "include/net.h")
"""Until 2.11 NCCL calls plugins through the second."""
_BUILT_IN = (None, "Socket", "IB")


def judge(facts: Facts) -> Results:
    """Judge a failed initialization, and set-up errors if no network of the plugin came up."""
    if slingshot.signs(facts):
        return  # the plugin also supports Slingshot
    failed = [n for n in facts.plugin("NET", "failed") if n.event and n.event.dialect == "aws-ofi-nccl"]
    reasons = sorted([*facts.notices(_NO_GDR), *facts.errors_of_rule(RULE.name)], key=attrgetter("place"))
    notices = [*reasons, *facts.notices("aws-ofi-nccl/ofi-protocol-failed"), *failed]
    broken = _connecting(facts, reasons)
    if not notices or _lacks_memory(facts) or (_came_up(facts) and not failed and not facts.job.failed and not broken):
        return
    reason, outcome = _reason(reasons), _outcome(facts, bool(broken))
    yield RULE.finding(
        f"aws-ofi-nccl {'cannot connect' if broken else 'fails to initialize'}{_reason_words(reasons)}",
        cause=reason.cause,
        impact=outcome.impact,
        fix=[
            *reason.fix,
            "Use libfabric and plugin from one EFA installer in the image, and that installer's driver on the node.",
            EFA_RELEASES,
            EFA_CHECK,
            LIBFABRIC_SAYS,
        ],
        confidence="likely" if reasons else "possible",
        severity=outcome.severity,
        notices=notices,
        evidence=first_evidence([*reasons[:3], *notices[-2:], *broken[:1]]),
        fatal=outcome.is_fatal,
    )


def _outcome(facts: Facts, is_broken: bool) -> Outcome:
    if tcp_paths(facts):
        return Outcome("error", "hosts communicate over TCP")
    if is_broken:
        in_use = "the job stops: the plugin was already in use, and NCCL cannot switch to another network"
        return Outcome("error", in_use, is_fatal=True)
    if facts.job.failed:
        return Outcome("error", "the job stops", is_fatal=True)
    return Outcome(
        "warning" if facts.spans_hosts() else "info",
        "NCCL continues with InfiniBand or TCP, or stops if NCCL_NET requires the plugin",
    )


def _came_up(facts: Facts) -> bool:
    return any(comm.network not in _BUILT_IN for comm in facts.job.communicators) or any(
        "Libfabric" in kind.detail for kind in facts.inter_host_net_paths().kinds
    )


def _connecting(facts: Facts, reasons: list[Notice]) -> list[Notice]:
    """NCCL's frames of connections that then failed, after it had chosen the plugin.

    If the reason comes after the first connection, frames of other ranks may precede it.
    """
    if not reasons or not (facts.with_event(OfiProvider) or _came_up(facts)):
        return []
    used = [
        line.order for line in first_lines(facts.inter_host_net_paths().where(lambda kind: "Libfabric" in kind.detail))
    ]
    late = bool(used) and reasons[0].evidence[0].order > min(used)
    broken = propagated_errors.frames(facts, files=_CONNECTING)
    return [frame for frame in broken if late or frame.place > reasons[0].place]


def _lacks_memory(facts: Facts) -> bool:
    """Whether buffers could not be registered because locked memory is limited, which explains later failures."""
    return any(abs(value(notice, "rc") or 0) == -_NO_MEMORY for notice in facts.with_role("memory-not-registered"))


def _reason_words(reasons: list[Notice]) -> str:
    return f": {reasons[0].message.removeprefix('NET/OFI ')}" if reasons else ""


@frozen
class _Reason(Frozen):
    """Why the plugin failed, with the steps for that."""

    cause: str
    fix: tuple[str, ...] = ()


_UNKNOWN = _Reason(
    "unknown from this log; likely: no provider (the lines at level INFO would show it), or a plugin and a libfabric "
    "that do not match"
)
_NO_SUCH_PROTOCOL = _Reason(
    "OFI_NCCL_PROTOCOL names a protocol that the plugin does not have",
    ("unset OFI_NCCL_PROTOCOL   # or SENDRECV, or RDMA",),
)
_LIBFABRIC_WITHOUT_GDR = _Reason(
    "this instance type has GPUDirect RDMA and the plugin requires it, but libfabric does not provide it: libfabric "
    "without CUDA, no nvidia-peermem or DMA-BUF, or FI_EFA_USE_DEVICE_RDMA=0",
    (
        "fi_info -p efa -c FI_HMEM; lsmod | grep nvidia_peermem   # must list the NICs, and the module",
        "unset FI_EFA_USE_DEVICE_RDMA",
        "OFI_NCCL_DISABLE_GDR_REQUIRED_CHECK=1   # a stopgap, slower",
    ),
)
_MEMORY_RAN_OUT = _Reason(
    "memory or a device resource ran out: most often the limit on locked memory, otherwise queues held by other "
    "processes",
    ("ulimit -l   # inside the container: must say unlimited", LOCKED_MEMORY_IN_POD, RDMA_IN_DOCKER),
)
_STEP_REFUSED = _Reason(
    "libfabric or the EFA device refused a step of the set-up: plugin, libfabric and driver do not match, or the "
    "device is not usable in this container"
)


def _reason(reasons: list[Notice]) -> _Reason:
    if not reasons:
        return _UNKNOWN
    first = reasons[0]
    if first.production == "aws-ofi-nccl/ofi-unknown-protocol":
        return _NO_SUCH_PROTOCOL
    if first.production == _NO_GDR:
        return _LIBFABRIC_WITHOUT_GDR
    return _MEMORY_RAN_OUT if value(first, "rc") == _NO_MEMORY else _STEP_REFUSED
