"""A transfer over EFA failed, for a reason other than a lost peer."""

from collections.abc import Iterator

from nccl_inspect.event.types import OfiProvider
from nccl_inspect.judging.engine import Facts, Finding, Layer, Results, Rule, first_evidence, value
from nccl_inspect.judging.networks.efa_completions import code_of, completions, is_gone
from nccl_inspect.judging.remedies import EFA_RELEASES, LIBFABRIC_SAYS

RULE = Rule(
    name="efa-completion-error",
    category="plugins",
    layer=Layer.LOSS,
    cloud="AWS",
    title="A transfer over EFA failed",
)
_CAUSES = {
    4: "the address handle of the peer is not valid on this device",
    5: "the memory to send is no longer registered, or not for this access",
    7: "the memory of the peer is no longer registered, or not for this access",
    10: "the peer posted no receive buffers in time: it is stuck or overloaded, or the plugin has a defect",
    18: "the peer lacks a feature that this side uses: EFA devices, drivers or libfabric of different generations",
    4105: "libfabric ran out of memory",
    4125: "the peer runs another release of libfabric: it sends a packet that zero-copy receive cannot handle",
    **dict.fromkeys((4097, 4098, 4099), "the peer sends packets of another libfabric release"),
}
_DIFFER = (18, 4097, 4098, 4099, 4125)


def judge(facts: Facts) -> Results:
    """Judge codes other than those of a lost peer, which are echoes of peer-death."""
    failed = [notice for notice in completions(facts) if not is_gone(notice)]
    if not failed:
        yield from _without_code(facts)
        return
    specific = [notice for notice in failed if code_of(notice) in _CAUSES] or failed
    code = code_of(specific[0])
    text, peer = value(specific[0], "error"), value(specific[0], "peer_host")
    yield RULE.finding(
        f"a transfer over EFA{f' to instance {peer}' if peer else ''} failed: {text}"
        + ("" if code is None else f" (code {code})"),
        cause=_CAUSES.get(code or 0)
        or "unknown from this log; likely: a peer that exited, dropped packets, or a fault of device or driver",
        impact="the collective fails, and with it the job",
        fix=_fix(code),
        confidence="likely" if code in _CAUSES else "possible",
        notices=failed,
        evidence=first_evidence(specific),
        fatal=True,
    )


def _without_code(facts: Facts) -> Iterator[Finding]:
    """Judge the plugin's messages around a failed completion, if that itself is not in the log."""
    notices = facts.with_role("beside-completion")
    providers = {getattr(notice.event, "provider", "") for notice in facts.with_event(OfiProvider)}
    if not notices or facts.with_role("efa-completion") or (providers and "efa" not in providers):
        return
    yield RULE.finding(
        f"a transfer over EFA failed: {notices[0].message.removeprefix('NET/OFI ')}",
        cause="unknown from this log; likely: a peer that exited, a security group that drops packets, or a fault of "
        "device or driver",
        impact="the collective fails, and with it the job",
        fix=["Make the security group allow all traffic from and to itself, in both directions.", *_fix(None)[:3]],
        confidence="possible",
        notices=notices,
        fatal=True,
    )


def _fix(code: int | None) -> list[str]:
    if code in _DIFFER:
        return [
            "Use the same EFA installer in all images, and the same EFA driver on all nodes.",
            EFA_RELEASES,
            *(["FI_EFA_USE_ZCPY_RX=0   # on all ranks, until the releases are the same"] if code == 4125 else []),
        ]
    return [
        "Find the rank that failed first: analyze the logs of all ranks.",
        "dmesg -T | grep -iE 'efa|oom|xid'   # on the host of that rank",
        LIBFABRIC_SAYS,
        "fi_info --version   # do all images have the same EFA installer (libfabric, plugin)?",
    ]
