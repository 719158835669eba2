"""Ranks of one host talk over the network."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_lines, lines_of, unset, using, words_of
from nccl_inspect.judging.hardware.peer_to_peer import local_over_net, switched_off
from nccl_inspect.judging.impact import SHM, SOCKET, estimate
from nccl_inspect.model.finding import Finding, Needs, NotJudged
from nccl_inspect.util.wording import count

RULE = Rule(
    name="net-instead-of-p2p",
    category="intra-node path",
    severity="error",
    title="Ranks of one host talk over the network instead of P2P or shared memory",
    echoes=("nvlink-not-used",),
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge NET paths between ranks of one host name."""
    pairs = local_over_net(facts)
    doubtful = facts.paths("intra", "NET").where(lambda kind: kind.doubtful)
    if doubtful:
        yield RULE.undecided(
            f"{count(len(doubtful), 'network path')} would join ranks of one host, but only the order of use tells of "
            "which communicator the lines are",
            Needs("the logs of all ranks, from their beginning", all_ranks=True),
            paths=doubtful,
        )
    if not pairs:
        return
    shm_off = facts.switched_on("NCCL_SHM_DISABLE")
    settings = [*switched_off(facts), *shm_off]
    nvlink = facts.platform is not None and bool(facts.platform.nvlink)
    direct = all(kind.gdr is True for kind in pairs.kinds) and not settings and not nvlink
    words = words_of(settings)
    yield RULE.finding(
        f"{count(len(pairs), 'pair')} of ranks on one host {using(pairs)}",
        cause=f"{words}: with P2P and shared memory both unusable only the network is left"
        if shm_off
        else "NCCL chose the network by itself: both GPUs reach NICs faster than each other"
        if direct
        else "not proved: P2P and SHM are both unusable, as when containers of one host do not share /dev/shm; or NCCL "
        "(2.14 and later) takes the NICs for faster than the way between these GPUs, without asking for GPUDirect RDMA"
        + (f"; {words} is set as well" if settings else ""),
        impact=estimate(
            f"data leaves the GPU for the network stack and comes back: {SOCKET} bus bandwidth over Socket, {SHM} "
            "through host memory",
            SOCKET,
            SHM,
        ),
        fix=[
            *(
                unset(settings)
                or ["Take one pod for each node, or give its containers one /dev/shm (hostIPC: true, or a hostPath)."]
            ),
            "NCCL_NET_DISABLE_INTRA=1   # keeps NCCL from choosing the network inside a host: it takes SHM, or fails",
        ],
        severity="info" if direct else "error",
        confidence="certain" if shm_off else "likely",
        evidence=[*first_lines(pairs)[:3], *lines_of(settings, 1)],
        paths=pairs,
    )
