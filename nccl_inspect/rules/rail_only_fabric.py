"""Connections between different rails fail while those within a rail work."""

from nccl_inspect.judging.engine import Facts, Finding, Layer, Needs, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import first_lines, hosts_in, nics_used, ranks_in
from nccl_inspect.judging.networks.transfers import silent_peers
from nccl_inspect.model.connection import End, Link
from nccl_inspect.model.job import Path, PathKind, Selection
from nccl_inspect.util.wording import count, ranks_word

RULE = Rule(
    name="rail-only-fabric",
    category="network",
    layer=Layer.SETTING,
    title="NICs of different rails cannot reach each other",
    supersedes=("ib-gid-index", "ib-timeout-err12"),
)
_TIMED_OUT, _NO_ANSWER = 110, 12
_CAPTURE = Needs("the logs of all ranks: NCCL_DEBUG=INFO NCCL_DEBUG_FILE=/logs/nccl.%h.%p.log", all_ranks=True)


def judge(facts: Facts) -> Results:
    """Judge whether the ranks with timeouts are those that connect different NIC numbers."""
    connecting = [
        notice for notice in facts.notices("nccl/ib-modify-qp-failed") if value(notice, "errno") == _TIMED_OUT
    ]
    lost = facts.completions(_NO_ANSWER)
    lost = [] if silent_peers(facts, lost) else lost  # a fabric fails both ways; here a process or a host was lost
    hints = facts.notices("nccl/hint-cross-rail")
    failed = ranks_in([*connecting, *lost, *hints])
    paths = facts.inter_host_rdma_paths().where(lambda _: failed)
    bad = paths.only(("src", "dst"), lambda *ends: not failed.isdisjoint(ends))
    if not bad or not any(len(nics) > 1 for nics in nics_used(bad).values()):
        return
    devices = {
        rank: {
            str(device)
            for notice in (*connecting, *lost)
            if rank in notice.ranks and (device := value(notice, "device"))
        }
        for rank in failed
    }
    explained = all(any(_explains(path, rank, devices[rank]) for path in bad) for rank in failed)
    straight = paths.without(bad).where(_keeps_rail)
    if explained and (straight or connecting or hints):
        yield _finding(bad, failed, [*connecting, *lost], hints, straight)
    elif (connecting or hints) and any(None in (link.send, link.receive) for kind in bad.kinds for link in kind.links):
        yield RULE.undecided(
            f"{ranks_word(failed)} cannot connect; only the lines of both ends show whether just the connections "
            "between different NIC numbers fail",
            _CAPTURE,
        )


def _explains(path: Path, rank: int, devices: set[str]) -> bool:
    """Whether this rank has a connection here that leaves the rail, on a NIC that failed (if NICs have names)."""
    return any(
        link.crosses_rails and (own.nic is None or not devices or own.nic in devices)
        for link in path.links
        for own in _own_ends(path, link, rank)
    )


def _own_ends(path: Path, link: Link, rank: int) -> list[End]:
    ends = ((path.src, link.send), (path.dst, link.receive))
    return [end for owner, end in ends if owner == rank and end is not None]


def _keeps_rail(kind: PathKind) -> bool:
    return bool(kind.links) and all(link.send and link.receive and not link.crosses_rails for link in kind.links)


def _finding(
    bad: Selection, failed: set[int], errors: list[Notice], hints: list[Notice], straight: Selection
) -> Finding:
    crossing = bad.where(lambda kind: any(link.crosses_rails for link in kind.links))
    works = f"; {count(len(straight), 'path')} within a rail without an error" if straight else ""
    return RULE.finding(
        f"{ranks_word(failed)}: connections between different NIC numbers time out "
        f"({count(len(crossing), 'path')}){works}",
        cause="the switches of the rails are not connected, or there is no route between their subnets"
        if straight
        else "either the switches of the rails are not connected, or these NICs cannot reach their peers at all "
        "(cable, GID index, routing): test with ib_write_bw between the first NIC of one host and the second of the "
        "other",
        impact="the job stops when such a connection is made or used",
        fix=[
            "NCCL_CROSS_NIC=0   # on all ranks; and unset NCCL_PXN_DISABLE, so that send/recv stays on its rail",
            "NCCL_NET_DISABLE_INTRA=1   # keeps NICs of one host from talking to each other",
            "ib_write_bw -d mlx5_0   # tests between rails: on another host run ib_write_bw -d mlx5_1 <host>",
            "Connect the rails, or route between them.",
        ],
        confidence="likely" if straight else "possible",
        ranks=failed,
        hosts=hosts_in(errors),
        evidence=[*first_evidence(errors)[:2], *first_evidence(hints)[:1], *first_lines(crossing)[:2]],
        fatal=True,
    )
