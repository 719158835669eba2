"""A transfer over EFA failed for another reason than a peer that went away."""

from collections.abc import Iterator

from nccl_inspect.event.types import OfiProvider
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_said, hosts_in, ranks_in
from nccl_inspect.judging.remedies import EFA_RELEASES, LIBFABRIC_SAYS
from nccl_inspect.judging.statements import value
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice

RULE = Rule(
    name="efa-completion-error",
    category="plugins",
    cloud="AWS",
    severity="error",
    title="A transfer over EFA failed",
    specific=("efa-security-group",),
    echo_of=("peer-death",),
)
_COMPLETIONS = ("ofi-completion-error", "ofi-completion-error-21", "ofi-remote-write-error")
_FOLLOWING = ("ofi-receive-buffer-error", "ofi-remote-write-error-old")
"""Printed beside a failed completion, without its code."""
UNREACHABLE = 15
"""EFA: the remote device never answered."""
UNRESPONSIVE = 13
"""EFA: no answer. Until libfabric 1.22 also where there never was one; from 2.0 on only after it had answered."""
_HOST_UNREACHABLE = 113
_GONE = (1, 8, 9, UNRESPONSIVE, 14, UNREACHABLE, 4124, 4126, 4127)
"""Codes of EFA that mean that the process or the machine at the other end is gone."""
_OF_TEXT = (
    ("flushed during", 1),
    ("receiver connection aborted", 8),
    ("connection was reset by remote peer", 8),
    ("invalid receiver queue pair", 9),
    ("bad queue pair", 9),
    ("receiver not ready", 10),
    ("destination resource not ready", 10),
    ("unresponsive receiver (connection previously", 4124),
    ("unresponsive receiver (reachable", 4126),
    ("unresponsive", UNRESPONSIVE),
    ("unreachable remote", UNREACHABLE),
)
"""How texts begin; the plugin prints the number from 1.10 on only."""
_CAUSES = {
    4: "the address handle of the peer is not valid on this device",
    5: "the memory that was to be sent is not registered any more, or not for this access",
    7: "the memory of the peer is not registered any more, or not for this access",
    10: "the peer posted no receive buffers in time: it is stuck, overloaded, or a fault of the plugin",
    18: "the peer lacks a feature that this side uses: EFA devices, drivers or libfabric of different generations",
    4105: "libfabric ran out of memory",
    4125: "the peer's libfabric is of another release: it sends a packet that zero-copy receive cannot take",
    **dict.fromkeys((4097, 4098, 4099), "the peer sends packets of another libfabric release"),
}
_DIFFER = (18, 4097, 4098, 4099, 4125)


def completions(facts: Facts) -> list[Notice]:
    """Transfers of aws-ofi-nccl that failed; over another provider than efa the codes mean something else."""
    providers = {getattr(notice.event, "provider", "") for notice in facts.said(OfiProvider)}
    return facts.notices(*_COMPLETIONS) if not providers or "efa" in providers else []


def code_of(notice: Notice) -> int | None:
    """The code that EFA gives a failed transfer, by its text where the number is not printed."""
    if (code := value(notice, "prov_errno")) is not None:
        return int(code)
    text = str(value(notice, "error")).lower()
    return next((code for beginning, code in _OF_TEXT if text.startswith(beginning)), None)


def unreached(facts: Facts) -> list[Notice]:
    """Failed transfers to a peer that never answered.

    Where connections were made before, and where an old libfabric does not tell whether there was an answer and the
    log does not show that connections were never made, the peer went away.
    """
    if is_connected(facts):
        return []
    sure = never_connected(facts)
    return [notice for notice in completions(facts) if _never_answered(notice) or (sure and _did_not_answer(notice))]


def never_connected(facts: Facts) -> bool:
    """Whether the log shows that a communicator began to connect and did not get through."""
    return not is_connected(facts) and any(comm.unconnected for comm in facts.job.communicators)


def is_connected(facts: Facts) -> bool:
    """Whether a communicator has all its connections over libfabric: making them takes messages through EFA."""
    done = {comm.id for comm in facts.job.communicators if not comm.unconnected}
    return any(done & set(path.communicators) for path in facts.leaving() if "Libfabric" in path.detail)


def lost_peers(facts: Facts) -> list[Notice]:
    """Failed transfers that tell no more than that the other side is gone, if there are no others."""
    failed = completions(facts)
    if unreached(facts) or not all(map(_is_gone, failed)):
        return []
    return [*failed, *facts.notices(*_FOLLOWING)] if failed else []


def _never_answered(notice: Notice) -> bool:
    code = code_of(notice)
    return code == UNREACHABLE or (code is None and value(notice, "err") == _HOST_UNREACHABLE)


def _did_not_answer(notice: Notice) -> bool:
    return code_of(notice) == UNRESPONSIVE and "previously responsive" not in str(value(notice, "error"))


def _is_gone(notice: Notice) -> bool:
    return code_of(notice) in _GONE or value(notice, "err") == _HOST_UNREACHABLE


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge the codes that do not mean that the peer is gone; those are echoes, told by peer-death."""
    failed = [notice for notice in completions(facts) if not _is_gone(notice)]
    if not failed:
        yield from _without_code(facts)
        return
    told = [notice for notice in failed if code_of(notice) in _CAUSES] or failed
    code = code_of(told[0])
    text = value(told[0], "error")
    yield RULE.finding(
        f"a transfer over EFA failed: {text}" + ("" if code is None else f" (code {code})"),
        cause=_CAUSES.get(code or 0)
        or "the text does not tell: a peer that went away, packets that are dropped, or a fault of device or driver",
        impact="the collective fails, and with it the job",
        fix=_fix(code),
        confidence="likely" if code in _CAUSES else "possible",
        ranks=ranks_in(failed),
        hosts=hosts_in(failed),
        evidence=first_said(told),
        fatal=True,
    )


def _without_code(facts: Facts) -> Iterator[Finding]:
    """Judge what the plugin says beside a failed completion where that is not in the log."""
    said = facts.notices(*_FOLLOWING)
    providers = {getattr(notice.event, "provider", "") for notice in facts.said(OfiProvider)}
    if not said or facts.notices(*_COMPLETIONS) or (providers and "efa" not in providers):
        return
    yield RULE.finding(
        f"a transfer over EFA failed: {said[0].message.removeprefix('NET/OFI ')}",
        cause="the line does not tell: a peer that went away, a security group that drops packets, or a fault of "
        "device or driver",
        impact="the collective fails, and with it the job",
        fix=["The security group must allow all traffic from and to itself, in both directions.", *_fix(None)[:3]],
        confidence="possible",
        ranks=ranks_in(said),
        hosts=hosts_in(said),
        evidence=first_said(said),
        fatal=True,
    )


def _fix(code: int | None) -> list[str]:
    if code in _DIFFER:
        return [
            "Take the same EFA installer in all images, and the same EFA driver on all nodes.",
            EFA_RELEASES,
            *(["FI_EFA_USE_ZCPY_RX=0   # on all ranks, until the releases are the same"] if code == 4125 else []),
        ]
    return [
        "Find the rank that failed first: give this tool the logs of all ranks.",
        "dmesg -T | grep -iE 'efa|oom|xid'   # on the host of that rank",
        LIBFABRIC_SAYS,
        "fi_info --version   # the same EFA installer (libfabric, plugin) in all images?",
    ]
