"""A transfer over EFA failed for another reason than a peer that went away."""

from collections.abc import Iterator

from nccl_inspect.event.types import OfiProvider
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_said
from nccl_inspect.judging.networks.efa_completions import code_of, completions, is_gone
from nccl_inspect.judging.remedies import EFA_RELEASES, LIBFABRIC_SAYS
from nccl_inspect.judging.statements import value
from nccl_inspect.model.finding import Finding, NotJudged

RULE = Rule(
    name="efa-completion-error",
    category="plugins",
    cloud="AWS",
    severity="error",
    title="A transfer over EFA failed",
)
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


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge the codes that do not mean that the peer is gone; those are echoes, told by peer-death."""
    failed = [notice for notice in completions(facts) if not is_gone(notice)]
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
        notices=failed,
        evidence=first_said(told),
        fatal=True,
    )


def _without_code(facts: Facts) -> Iterator[Finding]:
    """Judge what the plugin says beside a failed completion where that is not in the log."""
    said = facts.with_role("beside-completion")
    providers = {getattr(notice.event, "provider", "") for notice in facts.said(OfiProvider)}
    if not said or facts.with_role("efa-completion") or (providers and "efa" not in providers):
        return
    yield RULE.finding(
        f"a transfer over EFA failed: {said[0].message.removeprefix('NET/OFI ')}",
        cause="the line does not tell: a peer that went away, a security group that drops packets, or a fault of "
        "device or driver",
        impact="the collective fails, and with it the job",
        fix=["The security group must allow all traffic from and to itself, in both directions.", *_fix(None)[:3]],
        confidence="possible",
        notices=said,
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
