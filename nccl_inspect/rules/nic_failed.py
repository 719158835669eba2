"""NCCL gives up a NIC or a port after an error."""

from collections.abc import Iterator

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.finding import Finding, NotJudged

RULE = Rule(
    name="nic-failed",
    category="network",
    severity="error",
    title="NCCL gave up a NIC or a port after an error",
    echoes=("transfer-failed",),
)
_MOVED = "nccl/ib-port-failed"


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what NCCL says of ports that it does without (2.29 and later), and of communicators that lost their NIC."""
    said = facts.leading_to(RULE.name)
    if not said:
        return
    lost = [notice for notice in said if notice.production != _MOVED]
    yield stated_errors.finding(
        RULE,
        facts,
        said,
        f"a NIC or a port failed: {(lost or said)[0].message}",
        cause="a port or card reported an error that NCCL cannot repair on it: link, cable, transceiver, switch or card"
        + ("" if lost else "; the traffic moves to another port"),
        stops="no other port can take over: the communicator is lost, and with it the job"
        if lost
        else "the traffic of this port goes over the others, with less bandwidth",
        fix=(
            "ibstat; mlxlink -d <device> -m -e; dmesg -T | grep -iE 'mlx5|bnxt|link'   # on the host of this rank",
            "perfquery -x   # InfiniBand: error counters; RoCE: ethtool -S <netdev>",
            "Take the host out of the job until the port is sound.",
        ),
        confirm="Look for failed transfers (Got completion …) and exceptions of this rank.",
    )
