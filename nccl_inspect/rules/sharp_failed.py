"""In-network reduction (SHARP) does not come up, or fails."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.remedies import NOTHING
from nccl_inspect.model.finding import Finding, NotJudged

RULE = Rule(
    name="sharp-failed",
    category="network",
    severity="warning",
    title="In-network reduction (SHARP) does not come up, or fails",
    causes=("collnet-unavailable",),
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge the plugin's messages: NCCL continues without SHARP, but a failed operation ends the job."""
    init = facts.notices("hpcx/hpcx-sharp-init-failed")
    failed = facts.notices("hpcx/hpcx-sharp-failed")
    small = facts.notices("hpcx/hpcx-sharp-small-group")
    notices = [*failed, *init] or small
    if not notices:
        return
    dead = bool(failed) and facts.job.failed
    yield RULE.finding(
        f"SHARP: {notices[0].message}",
        cause="a SHARP operation failed, or SHARP does not support this data type"
        if failed
        else "no aggregation manager answers, sharpd is not running, or all reduction trees of the switches are in use"
        if init
        else "the communicator has fewer ranks than NCCL_SHARP_GROUP_SIZE_THRESH requires",
        impact="the operation fails, and with it the job"
        if dead
        else "NCCL continues with rings and trees, without in-network reduction"
        if init or failed
        else "none: rings and trees are as good for small groups",
        fix=[
            "systemctl status sharp_am   # on the host of the subnet manager",
            "sharp_hello -d mlx5_0:1   # on a node",
            "SHARP_COLL_LOG_LEVEL=3   # logs more; if no trees are left, use SHARP in fewer communicators",
            "NCCL_COLLNET_ENABLE=0   # disables SHARP",
        ]
        if init or failed
        else [NOTHING],
        severity="error" if dead else "warning" if init or failed else "info",
        confidence="certain",
        notices=notices,
        fatal=dead,
    )
