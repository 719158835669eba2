"""Connections between different rails fail while those within a rail work."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, first_evidence, value
from nccl_inspect.judging.facts import first_lines, hosts_in, nics_used, ranks_in
from nccl_inspect.judging.networks.transfers import silent_peers
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.model.job import Path, PathKind

_TIMED_OUT, _NO_ANSWER = 110, 12


def find(facts: Facts) -> Iterator[Hit]:
    """Find whether the ranks with timeouts are those that connect different NIC numbers."""
    connecting = [one for one in facts.notices("nccl/ib-modify-qp-failed") if value(one, "errno") == _TIMED_OUT]
    lost = facts.completions(_NO_ANSWER)
    lost = [] if silent_peers(facts, lost) else lost  # a fabric fails both ways; here a process or a host was lost
    errors, hints = [*connecting, *lost], facts.notices("nccl/hint-cross-rail")
    failed = ranks_in([*errors, *hints])
    paths = facts.inter_host_rdma_paths().where(lambda _: bool(failed))
    bad = paths.only(("src", "dst"), lambda *ends: not failed.isdisjoint(ends))
    if not bad or not any(len(nics) > 1 for nics in nics_used(bad).values()):
        return
    named = [(rank, value(error, "device")) for error in errors for rank in error.ranks]
    devices = {rank: {str(device) for owner, device in named if owner == rank and device} for rank in failed}
    explained = all(any(_explains(path, rank, devices[rank]) for path in bad) for rank in failed)
    straight = paths.without(bad).where(_keeps_rail)
    if explained and (straight or connecting or hints):
        crossing = bad.where(lambda kind: any(link.crosses_rails for link in kind.links))
        yield Hit(
            named={"failed": failed, "crossing": crossing, "straight": straight},
            ranks=failed,
            hosts=hosts_in(errors),
            evidence=[*first_evidence(errors)[:2], *first_evidence(hints)[:1], *first_lines(crossing)[:2]],
        )
    elif (connecting or hints) and any(None in (link.send, link.receive) for kind in bad.kinds for link in kind.links):
        yield Hit(named={"half": failed})


def _explains(path: Path, rank: int, devices: set[str]) -> bool:
    """Whether this rank has a connection here that leaves the rail, on a NIC that failed (if NICs have names)."""
    ends = [(link, end) for link in path.links for end in ((path.src, link.send), (path.dst, link.receive))]
    return any(
        link.crosses_rails
        and own is not None
        and owner == rank
        and (own.nic is None or not devices or own.nic in devices)
        for link, (owner, own) in ends
    )


def _keeps_rail(kind: PathKind) -> bool:
    return bool(kind.links) and all(link.send and link.receive and not link.crosses_rails for link in kind.links)
