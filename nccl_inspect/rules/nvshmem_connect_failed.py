"""NVSHMEM could not connect two hosts over InfiniBand or RoCE."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Results, Rule
from nccl_inspect.judging.statements import find_text

RULE = Rule(
    name="nvshmem-connect-failed",
    category="network",
    title="NVSHMEM could not connect two hosts over InfiniBand or RoCE",
    shows=("no-nvshmem",),
    supersedes=("nvshmem-failed",),
)


def judge(facts: Facts) -> Results:
    """Judge the steps of NVSHMEM's InfiniBand transports, the innermost of which is printed first."""
    errors = facts.errors_of_rule(RULE.name)
    if not errors:
        return
    yield stated_errors.finding(
        RULE,
        facts,
        errors,
        f"NVSHMEM cannot connect over InfiniBand or RoCE: {find_text(errors[0])}",
        cause="unknown from this log; likely: the GID of the NIC does not reach its peer, a port or a NIC that is not "
        "the one to use, a limit on locked memory, or firmware and libraries that do not fit",
        stops="NVSHMEM does not start, and with it DeepEP and whatever else uses it",
        fix=(
            "show_gids   # which row is RoCE v2 with the IPv4 address? NVSHMEM_IB_GID_INDEX=<row>",
            "NVSHMEM_HCA_LIST=mlx5_0:1,mlx5_1:1   # only NICs of the fabric between the GPUs; ibstat: are they up?",
            "ulimit -l   # in the container: must print unlimited",
            "NVSHMEM_DEBUG=INFO NVSHMEM_DEBUG_SUBSYS=TRANSPORT   # which NIC each GPU uses",
            "ib_write_bw -d <nic> -x <gid index>   # between the two hosts: does it work without NVSHMEM?",
        ),
        confirm="Check whether the program continues without NVSHMEM.",
    )
