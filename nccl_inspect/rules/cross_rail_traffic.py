"""Network connections that leave their rail, if the log shows that the fabric has rails."""

from __future__ import annotations

from collections.abc import Sequence

from nccl_inspect.event.types import NetDevices
from nccl_inspect.judging.engine import Evidence, Facts, Results, Rule
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, first_lines
from nccl_inspect.judging.networks.nic_use import crossing
from nccl_inspect.model.connection import End, Link
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import count

RULE = Rule(
    name="cross-rail-traffic",
    category="topology",
    severity="info",
    title="Connections between hosts go from one NIC number (rail) to another",
    shows=("cross-rail",),
)


@frozen
class _Sign(Frozen):
    """Evidence that the fabric has rails."""

    words: str
    evidence: list[Evidence]


def judge(facts: Facts) -> Results:
    """Judge connections whose ends are both in the log, if it shows that the fabric has rails.

    On a flat fabric such connections cost nothing, and an all-to-all group without PXN connects every NIC with every
    other: without evidence of rails there is nothing to act on.
    """
    rails = _rails(facts)
    sign = _sign(facts, rails)
    if sign is None:
        return
    joined = ("kind", "src_host", "dst_host")
    paths = crossing(facts).only(
        joined, lambda kind, *hosts: any(_leaves_rail(hosts, link, rails) for link in kind.links)
    )
    if not paths:
        return
    links = [
        link for kind, *hosts in paths.distinct(*joined) for link in kind.links if _leaves_rail(hosts, link, rails)
    ]
    matched = facts.inter_host_rdma_paths().where(lambda kind: any(link.send and link.receive for link in kind.links))
    allowed = [setting for setting in facts.user_settings("NCCL_CROSS_NIC") if setting.value == "1"]
    yield RULE.finding(
        f"{len(paths)} of {count(len(matched), 'network path')} leave their rail ({_use(links)}), such as "
        f"{_nic_name(links[0].send)} to {_nic_name(links[0].receive)}; {sign.words}",
        cause=f"{as_shell(allowed)} allows it"
        if allowed
        else "NCCL chose the NIC nearest to each GPU; this happens if hosts have different sets of GPUs or NICs, or "
        "with send/recv without PXN",
        impact="if rails meet only at spine switches, such traffic takes more hops and shares their links",
        fix=[
            "NCCL_CROSS_NIC=0   # with the same GPUs and NICs on all hosts, and PXN enabled",
            "Compare with and without it: alltoall_perf and all_reduce_perf of nccl-tests over the same hosts.",
        ],
        confidence="likely",
        evidence=[*sign.evidence, *first_lines(paths)[:4]],
        paths=paths,
    )


def _use(links: list[Link]) -> str:
    uses = {False: "rings or trees", True: "send/recv"}
    return ", and ".join(uses[is_send_recv] for is_send_recv in sorted({link.send_recv for link in links}))


def _sign(facts: Facts, rails: dict[tuple[str, int], str]) -> _Sign | None:
    """The first evidence of rails: NCCL's list of NICs, its warning, or a setting made for them."""
    if rails:
        listed = facts.with_event(NetDevices, lambda event: bool(_rails_of(event)))
        return _Sign("the list of NICs names their rails", [listed[0].evidence[0]])
    if warned := facts.notices("nccl/ib-rail-mismatch"):
        return _Sign("NCCL warns of it", [warned[0].evidence[0]])
    settings = [setting for setting in facts.user_settings("NCCL_CROSS_NIC") if setting.value in ("0", "1")]
    return _Sign(f"{as_shell(settings)} is set", evidence_of_settings(settings, 1)) if settings else None


def _rails(facts: Facts) -> dict[tuple[str, int], str]:
    """The rail of each NIC, by host and index, if NCCL lists them."""
    return {
        (host, index): rail
        for notice in facts.with_event(NetDevices)
        for host in notice.hosts
        for index, rail in _rails_of(notice.event)
    }


def _rails_of(event: object) -> list[tuple[int, str]]:
    """The rails in a list of NICs: 2.30 writes ``mlx5_0:port:rail:plane``."""
    if not isinstance(event, NetDevices) or event.net != "IB":
        return []
    numbers = ((device[0], device[2].split(":")) for device in event.devices if len(device) > 2)
    return [(index, number[1]) for index, number in numbers if len(number) > 1 and number[1]]


def _leaves_rail(hosts: Sequence[str | None], link: Link, rails: dict[tuple[str, int], str]) -> bool:
    """Whether a link goes from one rail to another; two NICs of different numbers may be on the same rail."""
    if not link.crosses_rails or link.send is None or link.receive is None:
        return False
    ends = zip(hosts, (link.send.nic_index, link.receive.nic_index), strict=True)
    pair = {rails.get((host or "", -1 if index is None else index)) for host, index in ends}
    return None in pair or len(pair) > 1


def _nic_name(end: End | None) -> str:
    nic, index = (end.nic, end.nic_index) if end else (None, None)
    return f"NIC {index}" + (f" ({nic})" if nic else "")
