"""Ranks of one host use the network."""

from nccl_inspect.judging.engine import Facts, Needs, Results, Rule
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, first_lines, unset_steps, usage_of
from nccl_inspect.judging.hardware.peer_to_peer import disabling_settings, local_over_net
from nccl_inspect.judging.impact import SHM, estimate, in_use
from nccl_inspect.util.wording import count, listed

RULE = Rule(
    name="net-instead-of-p2p",
    category="intra-node path",
    title="Ranks of one host use the network instead of P2P or shared memory",
    may_cause=("idle-nvlink", "slow"),
    shows=("net-path",),
)


def judge(facts: Facts) -> Results:
    """Judge NET paths between ranks of one host name."""
    pairs = local_over_net(facts)
    doubtful = facts.paths("intra", "NET").where(lambda kind: kind.doubtful)
    if doubtful:
        yield RULE.undecided(
            f"{count(len(doubtful), 'network path')} would connect ranks of one host, but only the order of use shows "
            "which communicator the lines belong to",
            Needs("the logs of all ranks, from their beginning", all_ranks=True),
            paths=doubtful,
        )
    if not pairs:
        return
    shm_off = facts.enabled_settings("NCCL_SHM_DISABLE")
    settings = [*disabling_settings(facts), *shm_off]
    nvlink = facts.platform is not None and bool(facts.platform.nvlink)
    net = in_use(pairs, facts.platform)
    rate = f": {net} bus bandwidth over {listed(kind.detail for kind in pairs.kinds)}" if net else ""
    is_chosen = all(kind.gdr is True for kind in pairs.kinds) and not settings and not nvlink
    yield RULE.finding(
        f"{count(len(pairs), 'pair')} of ranks on one host {usage_of(pairs)}",
        cause=_cause(as_shell(settings), has_no_shm=bool(shm_off), is_chosen=is_chosen),
        impact=estimate(
            f"data leaves the GPU for the network stack and comes back{rate}; {SHM} through host memory",
            *([net] if net else []),
            SHM,
        ),
        fix=[
            *(
                unset_steps(settings)
                or ["Use one pod per node, or let its containers share /dev/shm (hostIPC: true, or a hostPath)."]
            ),
            "NCCL_NET_DISABLE_INTRA=1   # no network inside a host: NCCL uses SHM, or fails",
        ],
        severity="info" if is_chosen else "error",
        confidence="certain" if shm_off else "likely",
        evidence=[*first_lines(pairs)[:3], *evidence_of_settings(settings, 1)],
        paths=pairs,
    )


def _cause(settings: str, *, has_no_shm: bool, is_chosen: bool) -> str:
    if has_no_shm:
        return f"{settings}: without P2P and shared memory, only the network is left"
    if is_chosen:
        return "NCCL chose the network: both GPUs reach NICs faster than each other"
    return (
        "unknown from this log; likely: P2P and SHM are both unusable, as when containers of one host "
        "do not share /dev/shm; or NCCL (2.14 and later) assumes that the NICs are faster than the path between these "
        "GPUs, without checking for GPUDirect RDMA" + (f"; {settings} is also set" if settings else "")
    )
