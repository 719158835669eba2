"""NCCL stopped using a NIC or a port after an error."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Layer, Results, Rule

RULE = Rule(
    name="nic-failed",
    category="network",
    layer=Layer.HARDWARE,
    title="NCCL stopped using a NIC or a port after an error",
)
_MOVED = "nccl/ib-port-failed"


def judge(facts: Facts) -> Results:
    """Judge ports that NCCL stops using (2.29 and later), and communicators that lost their NIC."""
    notices = facts.errors_of_rule(RULE.name)
    if not notices:
        return
    lost = [notice for notice in notices if notice.production != _MOVED]
    yield stated_errors.finding(
        RULE,
        facts,
        notices,
        f"a NIC or a port failed: {(lost or notices)[0].message}",
        cause="a port or card reported an error that NCCL cannot repair on it: link, cable, transceiver, switch or card"
        + ("" if lost else "; the traffic moves to another port"),
        stops="no other port can take over: the communicator is lost, and with it the job"
        if lost
        else "the traffic of this port uses the others, with less bandwidth",
        fix=(
            "ibstat; mlxlink -d <device> -m -e; dmesg -T | grep -iE 'mlx5|bnxt|link'   # on the host of this rank",
            "perfquery -x   # InfiniBand: error counters; RoCE: ethtool -S <netdev>",
            "Exclude the host from the job until the port is repaired.",
        ),
        confirm="Look for failed transfers (Got completion …) and exceptions of this rank.",
    )
