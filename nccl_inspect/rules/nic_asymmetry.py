"""Hosts of one job show NCCL different numbers of NICs."""

from collections.abc import Iterator

from nccl_inspect.event_types import NetDevices, OfiProvider
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, listed, ranks_in
from nccl_inspect.rules.statements import value

RULE = Rule(
    name="nic-asymmetry",
    category="network",
    severity="warning",
    title="Hosts of one job have different numbers of NICs",
    because=("ib-bad-device", "ib-async-event"),
)
_SEVERE = 5
"""How many times fewer NICs make an error of it."""


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what NCCL says of it (2.30.3 and later), else the lists of NICs of hosts with equally many ranks."""
    stopped = facts.notices("net-device-count-mixed")
    counted = [*stopped, *facts.notices("net-device-mismatch")]
    if counted:
        low, high = min(value(n, "min") for n in counted), max(value(n, "max") for n in counted)
        said = [*counted, *facts.notices("net-device-count-low")]
        yield _finding(low, high, "", said, stopped=bool(stopped), stated=True)
        return
    if of_one := facts.leading_to(RULE.name):
        yield _of_one_side(facts, of_one)
        return
    lists = _lists(facts)
    if not any(path.net != "Socket" for path in facts.leaving()) or len(facts.settings("NCCL_IB_HCA")) > 1:
        return
    if not lists:
        return
    nics = {host: number for number, notices in lists.items() for host in hosts_in(notices)}
    peers = [host for host in facts.job.hosts if host.name in nics]
    if len(lists) < 2 or len({len(host.ranks) for host in peers}) != 1:
        return  # half a node has half its NICs: that is no fault
    if _is_odd_one(len(peers[0].ranks), min(lists), max(lists)):
        return
    told = listed(f"{host.name} {nics[host.name]}" for host in peers)
    lines = [notice for number in sorted(lists) for notice in lists[number][:2]]
    yield _finding(min(lists), max(lists), f": {told}", lines, stopped=False, stated=False)


def _of_one_side(facts: Facts, told: list[Notice]) -> Finding:
    """What one rank says of its own NICs, without the line that compares all."""
    facts.pass_over(told)
    return RULE.clue(
        f"ranks do not have the same number of NICs: {told[0].message}",
        cause="NICs are missing on some hosts or in some pods: a port is down, the device plugin gave fewer, or the "
        "variables that choose NICs differ",
        impact="connections use the NICs that both sides have: the slowest rank sets the pace, or the set-up fails",
        fix=[
            "kubectl describe pod <pod> | grep -A4 Limits   # equally many rdma/<resource> or vpc.amazonaws.com/efa",
            "ibstat | grep -E 'CA |State'; ls /dev/infiniband   # on all hosts; EFA: fi_info -p efa",
        ],
        confirm="Compare the NICs that each rank lists (NET/IB : Using …, Selected provider …).",
        ranks=ranks_in(told),
        hosts=hosts_in(told),
        evidence=first_said(told),
    )


def _lists(facts: Facts) -> dict[int, list[Notice]]:
    """The lists of NICs by the number of NICs in them; a kind of link that some hosts have only is left out."""
    found: dict[int, list[Notice]] = {}
    said = facts.said(
        NetDevices, lambda event: isinstance(event, NetDevices) and event.net == "IB" and bool(event.devices)
    )
    kinds = [{device[-1] for device in getattr(notice.event, "devices", ())} for notice in said]
    common = set.intersection(*kinds) if kinds else set()
    for notice in facts.job.notices:
        match notice.event:
            case NetDevices(net="IB", devices=devices) if devices:
                alike = [device for device in devices if not common or device[-1] in common]
                found.setdefault(len(alike), []).append(notice)
            case OfiProvider(provider="efa", nics=int(nics)):
                found.setdefault(nics, []).append(notice)
    return found


def _is_odd_one(ranks: int, low: int, high: int) -> bool:
    """Whether the hosts with fewer have as many NICs for each GPU as can be, and the others some besides: storage."""
    return ranks > 0 and low >= ranks and low % ranks == 0 and high < low + ranks


def _finding(low: int, high: int, told: str, said: list[Notice], *, stopped: bool, stated: bool) -> Finding:
    return RULE.finding(
        f"ranks see between {low} and {high} NICs{told}",
        cause="NICs are missing on some hosts or in some pods: a port is down, the device plugin gave fewer, or the "
        "variables that choose NICs differ",
        impact="NCCL stops with an error (NCCL_IGNORE_NET_MISMATCH=0)"
        if stopped
        else "the ring is as fast as its slowest host: the others' NICs idle in part",
        fix=[
            "kubectl describe pod <pod> | grep -A4 Limits   # equally many rdma/<resource> or vpc.amazonaws.com/efa",
            "ibstat | grep -E 'CA |State'; ls /dev/infiniband   # on the hosts with fewer; EFA: fi_info -p efa",
            "Give all ranks the same NCCL_IB_HCA.",
            "NCCL_IGNORE_NET_MISMATCH=0   # stops such a job early (2.30.3 and later)",
        ],
        severity="error" if stopped or high >= _SEVERE * max(low, 1) else "warning",
        confidence="certain" if stated else "likely",
        ranks=ranks_in(said),
        hosts=hosts_in(said),
        evidence=first_said(said),
        fatal=stopped,
    )
