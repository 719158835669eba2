"""Network connections whose two ends use different NICs."""

from collections.abc import Iterator

from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Path
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, count, ends, first_lines, hosts_of, lines_of, nics_used, words_of

RULE = Rule(
    name="cross-rail-traffic",
    category="topology",
    severity="info",
    title="Connections between hosts go from one NIC number (rail) to another",
    because=("pxn-unused",),
)


def crossing(facts: Facts) -> list[Path]:
    """Paths that leave a rail, between hosts that use several NICs each: with one NIC there is no rail to keep to.

    The networks behind libfabric (EFA, Slingshot) have no rails.
    """
    paths = [path for path in facts.rdma() if "Libfabric" not in (path.net or "")]
    used = nics_used(paths)
    return [
        path
        for path in paths
        if any(link.crosses_rails for link in path.links)
        and all(len(used.get(host or "", ())) > 1 for host in (path.src_host, path.dst_host))
    ]


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge connections of which both ends are in the log; on a flat fabric it is no fault."""
    paths = crossing(facts)
    if not paths:
        return
    facts.mark(paths, RULE.name)
    links = [link for path in paths for link in path.links if link.crosses_rails]
    kinds = {link.send_recv for link in links}
    asked = [setting for setting in facts.chosen("NCCL_CROSS_NIC") if setting.value == "1"]
    example = links[0]
    known = sum(any(link.send and link.receive for link in path.links) for path in facts.rdma())
    what = "rings or trees" if kinds == {False} else "send/recv" if kinds == {True} else "rings or trees, and send/recv"
    yield RULE.finding(
        f"{count(len(paths), 'network path')} of {known} with both ends in the log change the rail ({what}), for "
        f"example {_name(example.send)} to {_name(example.receive)}",
        cause=f"{words_of(asked)} allows it"
        if asked
        else "NCCL chose the NIC nearest to each GPU; hosts with other sets of GPUs or NICs, or send/recv without PXN, "
        "lead to this",
        impact="none on a flat fabric; on rails that meet at spine switches only, such traffic takes more hops and "
        "shares their links. The log does not show the fabric",
        fix=[
            "NCCL_CROSS_NIC=0   # fabrics with rails: the same GPUs and NICs on all hosts, PXN not disabled",
            "Compare with and without: alltoall_perf and all_reduce_perf of nccl-tests over the same hosts.",
        ],
        confidence="likely",
        ranks=ends(paths),
        hosts=hosts_of(paths),
        evidence=[*first_lines(paths)[:4], *lines_of(asked, 1)],
    )


def _name(end: object) -> str:
    nic, index = getattr(end, "nic", None), getattr(end, "nic_index", None)
    return f"NIC {index}" + (f" ({nic})" if nic else "")
