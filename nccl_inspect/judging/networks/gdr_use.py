"""Which paths between hosts use GPUDirect RDMA at both ends, at one, at none."""

from __future__ import annotations

from operator import methodcaller

from nccl_inspect.judging.facts import ENDS, HOSTS, Facts, once
from nccl_inspect.model.job import Selection
from nccl_inspect.model.paths.path import SIDES
from nccl_inspect.platforms.fabrics import find_nic_family


@once
def one_sided_paths(facts: Facts) -> Selection:
    """Paths with GPUDirect at one end only, and those of the only hosts that lack it."""
    paths = facts.inter_host_rdma_paths()
    without = hosts_without(paths)
    differing = paths.where(lambda kind: {kind.gdr_at(side) for side in SIDES} == {True, False})
    lacking = paths.where(lambda kind: kind.gdr is False)
    return differing | lacking.filter_values(
        (*ENDS.values(), *HOSTS.values()),
        lambda send, receive, src, dst: (not send or src in without) and (not receive or dst in without),
    )


def hosts_without(paths: Selection) -> set[str]:
    """Hosts whose ends all lack GPUDirect, including receiving ones, if on other hosts all ends have it."""
    by_host: dict[str, set[object]] = {}
    receiving = set()
    for side, column in HOSTS.items():
        for host, gdr in paths.distinct(column, methodcaller("gdr_at", side)):
            if host is not None and gdr is not None:
                by_host.setdefault(host, set()).add(gdr)
                if side == "receive" and gdr is False:
                    receiving.add(host)
    having = [host for host, kinds in by_host.items() if kinds == {True}]
    lacking = {host for host, kinds in by_host.items() if kinds == {False} and host in receiving}
    return lacking if having and len(having) + len(lacking) == len(by_host) else set()


def paths_without_gdr(facts: Facts) -> Selection:
    """Paths between hosts over an RDMA network that do not use GPUDirect in all their lines.

    Where it is missing at one end only, or on some hosts only, gdr-one-sided tells it.
    """
    return facts.inter_host_rdma_paths().where(lambda kind: kind.gdr is not True).exclude(one_sided_paths(facts))


def lacking(facts: Facts) -> tuple[str, str] | None:
    """Return the machine type or the NICs with which GPUDirect RDMA does not work, and where that is stated."""
    if facts.platform and facts.platform.gdr is False:
        return facts.platform.name, facts.platform.source("gdr")
    family = find_nic_family(facts.job.network.devices) if facts.job.network.name == "IB" else None
    return (family.name, family.source) if family and not family.gdr else None
