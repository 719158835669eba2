"""InfiniBand and RoCE ports are used together."""

from collections.abc import Iterator

from nccl_inspect.event.types import NetDevices
from nccl_inspect.judging.engine import Evidence, Facts, Finding, Layer, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import first_lines, hosts_in, ranks_in, ranks_of_paths
from nccl_inspect.model.job import Selection
from nccl_inspect.util.wording import does, listed, some_names

RULE = Rule(
    name="ib-mixed-link-layer",
    category="network",
    layer=Layer.SETTING,
    title="InfiniBand and RoCE ports are mixed",
)
_BOTH = {"IB", "RoCE"}


def judge(facts: Facts) -> Results:
    """Judge connections that fail; else whether traffic uses ports of both kinds."""
    clashes = facts.notices("nccl/ib-link-layer-mixed", "nccl/ib-devices-incompatible")
    # NCCL continues and uses the ports separately.
    unmerged = [notice for notice in clashes if value(notice, "__step") == "merge"]
    failed = [notice for notice in clashes if notice not in unmerged]
    unmerged += facts.notices("nccl/ib-merge-link-layer")
    lists = [n for n in facts.with_event(NetDevices) if set(_links(n).values()) >= _BOTH]
    kinds = {name: link for notice in lists for name, link in _links(notice).items()}
    paths = facts.inter_host_net_paths().where(lambda kind: kind.nic in kinds)
    both = {kinds[kind.nic] for kind in paths.kinds if kind.nic} == _BOTH
    if not failed and not unmerged and not paths:
        yield from _clue(facts)
        return
    notices = [*failed, *unmerged, *lists]
    yield RULE.finding(
        _summary(failed, lists, paths, kinds),
        cause="the host has ports of both kinds, often a storage or management card besides those for NCCL",
        impact="the ranks cannot connect, and NCCL stops"
        if failed
        else "part of the traffic uses ports of the other kind, which may be slower or reach different hosts"
        if both
        else "none in this log: traffic uses ports of one kind",
        fix=[
            "NCCL_IB_HCA='=mlx5_0,mlx5_1'   # on all nodes: only the ports for NCCL; '^=mlx5_8' excludes one",
            "ibstat | grep -E 'CA |Link layer'   # which port is of which kind",
        ],
        severity="error" if failed else "warning" if both else "info",
        confidence="likely" if both and not failed else "certain",
        ranks=ranks_in(failed) or (ranks_of_paths(paths) if both else ranks_in(notices)),
        hosts=hosts_in(notices),
        evidence=[*first_evidence(notices)[:3], *first_lines(paths)[:2]],
        fatal=bool(failed),
    )


def _clue(facts: Facts) -> Iterator[Finding]:
    """Before hosts connect: some list only InfiniBand ports, and others only RoCE ports."""
    kinds: dict[str, set[str]] = {}
    lists = [notice for notice in facts.with_event(NetDevices) if _links(notice)]
    for notice in lists:
        for host in notice.hosts:
            kinds.setdefault(host, set()).update(_links(notice).values())
    one_kind = {kind: sorted(host for host, links in kinds.items() if links == {kind}) for kind in sorted(_BOTH)}
    if facts.paths(transport="NET") or not all(one_kind.values()):
        return
    yield RULE.clue(
        "; ".join(
            f"{some_names(hosts)} {does(len(hosts), 'list')} only {kind} ports" for kind, hosts in one_kind.items()
        ),
        cause="a port is set to the other protocol, or these hosts belong to different clusters",
        impact="an InfiniBand port cannot connect to a RoCE port: NCCL stops",
        fix=[
            "ibstat | grep -E 'CA |Link layer'   # on these hosts",
            "Exclude the hosts of the other kind from the job, or set their ports to the same link type.",
        ],
        confirm="Look for 'is incompatible with the local' once hosts connect.",
        ranks=ranks_in(lists),
        hosts=kinds,
        evidence=_first_of_hosts(lists, [hosts[0] for hosts in one_kind.values()]),
    )


def _first_of_hosts(lists: list[Notice], hosts: list[str]) -> list[Evidence]:
    first = (next((notice for notice in lists if host in notice.hosts), None) for host in hosts)
    return first_evidence([notice for notice in first if notice])


def _links(notice: Notice) -> dict[str, str]:
    """The kind of link of each InfiniBand or RoCE device in a list."""
    event = notice.event
    if not isinstance(event, NetDevices) or event.net != "IB":
        return {}
    return {str(device[1]): str(device[-1]) for device in event.devices}


def _summary(failed: list[Notice], lists: list[Notice], paths: Selection, kinds: dict[str, str]) -> str:
    if failed:
        return "a connection has an InfiniBand port at one end and a RoCE port at the other"
    if not lists:
        return "ports with different link layers cannot be used as one NIC"
    used = listed(f"{nic} ({kinds[nic]})" for nic in sorted({kind.nic for kind in paths.kinds if kind.nic}))
    return "both InfiniBand and RoCE ports are listed" + (f"; traffic uses {used}" if used else "")
