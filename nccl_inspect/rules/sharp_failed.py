"""In-network reduction (SHARP) does not come up, or fails."""

from __future__ import annotations

from nccl_inspect.judging.engine import Facts, Notice, Results, Rule
from nccl_inspect.judging.impact import Outcome
from nccl_inspect.judging.remedies import NOTHING
from nccl_inspect.util.records import Frozen, frozen

RULE = Rule(
    name="sharp-failed",
    category="network",
    severity="warning",
    title="In-network reduction (SHARP) does not come up, or fails",
    may_cause=("no-collnet",),
)


_FIX = (
    "systemctl status sharp_am   # on the host of the subnet manager",
    "sharp_hello -d mlx5_0:1   # on a node",
    "SHARP_COLL_LOG_LEVEL=3   # logs more; if no trees are left, use SHARP in fewer communicators",
    "NCCL_COLLNET_ENABLE=0   # disables SHARP",
)
_CONTINUES = Outcome("warning", "NCCL continues with rings and trees, without in-network reduction")


@frozen
class _Failure(Frozen):
    """What the plugin reports of SHARP."""

    notices: list[Notice]
    cause: str
    outcome: Outcome
    fix: tuple[str, ...] = _FIX


def judge(facts: Facts) -> Results:
    """Judge the plugin's messages: NCCL continues without SHARP, but a failed operation ends the job."""
    if failure := _failure(facts):
        yield RULE.finding(
            f"SHARP: {failure.notices[0].message}",
            cause=failure.cause,
            impact=failure.outcome.impact,
            fix=failure.fix,
            severity=failure.outcome.severity,
            notices=failure.notices,
            fatal=failure.outcome.is_fatal,
        )


def _failure(facts: Facts) -> _Failure | None:
    init = facts.notices("hpcx/hpcx-sharp-init-failed")
    if failed := facts.notices("hpcx/hpcx-sharp-failed"):
        fatal = Outcome("error", "the operation fails, and with it the job", is_fatal=True)
        cause = "a SHARP operation failed, or SHARP does not support this data type"
        return _Failure([*failed, *init], cause, fatal if facts.job.failed else _CONTINUES)
    if init:
        cause = (
            "no aggregation manager answers, sharpd is not running, or all reduction trees of the switches are in use"
        )
        return _Failure(init, cause, _CONTINUES)
    if small := facts.notices("hpcx/hpcx-sharp-small-group"):
        cause = "the communicator has fewer ranks than NCCL_SHARP_GROUP_SIZE_THRESH requires"
        harmless = Outcome("info", "none: rings and trees are as good for small groups")
        return _Failure(small, cause, harmless, fix=(NOTHING,))
    return None
