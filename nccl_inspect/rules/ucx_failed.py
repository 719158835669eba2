"""The UCX transport of the HPC-X plugin failed."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Results, Rule

RULE = Rule(
    name="ucx-failed",
    category="plugins",
    title="The UCX transport of the HPC-X plugin failed",
    echoes=("internal-error",),
    is_symptom=True,
)


def judge(facts: Facts) -> Results:
    """Judge the plugin's errors about UCX calls; transfer-failed judges transfers over it."""
    errors = facts.errors_of_rule(RULE.name)
    if not errors:
        return
    yield stated_errors.finding(
        RULE,
        facts,
        errors,
        f"UCX failed: {errors[0].message}",
        cause="UCX, its release or its settings do not match this NIC or the other ranks, it reached an internal "
        "limit, or a peer is gone. NCCL_PLUGIN_P2P=ucx, uct or ucx_uct selected it: the plugin's own InfiniBand code "
        "is the default",
        stops="the connection cannot be made or used, and the job stops",
        fix=(
            "NCCL_PLUGIN_P2P=ib   # the plugin's InfiniBand transport; or unset it",
            "ucx_info -v; ucx_info -d | grep -E 'Device|Transport'   # on all nodes: the same release, and all NICs?",
            "UCX_LOG_LEVEL=info   # on all ranks: UCX logs what fails",
        ),
        confirm="Check which rank failed first: a dead peer looks the same.",
        confidence="likely" if facts.job.failed else "possible",
    )
