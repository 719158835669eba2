"""The UCX transport of the HPC-X plugin failed."""

from collections.abc import Iterator

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.finding import Finding, NotJudged

RULE = Rule(
    name="ucx-failed",
    category="plugins",
    severity="error",
    title="The UCX transport of the HPC-X plugin failed",
    echoes=("internal-error",),
    symptom=True,
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what the plugin says of calls of UCX; transfers over it are the affair of transfer-failed."""
    said = facts.leading_to(RULE.name)
    if not said:
        return
    yield stated_errors.finding(
        RULE,
        facts,
        said,
        f"UCX failed: {said[0].message}",
        cause="UCX, its release or its settings do not fit this NIC or the other ranks, a limit inside it is "
        "reached, or a "
        "peer is gone. NCCL_PLUGIN_P2P=ucx, uct or ucx_uct chose it: the plugin's own InfiniBand code is the default",
        stops="the connection cannot be made or used, and the job stops",
        fix=(
            "NCCL_PLUGIN_P2P=ib   # the plugin's InfiniBand transport; or unset it",
            "ucx_info -v; ucx_info -d | grep -E 'Device|Transport'   # on all nodes: one release, and the NICs?",
            "UCX_LOG_LEVEL=info   # on all ranks: UCX itself tells what fails",
        ),
        confirm="Check which rank failed first: a peer that is gone looks the same here.",
        confidence="likely" if facts.job.failed else "possible",
    )
