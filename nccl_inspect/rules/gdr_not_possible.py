"""Network paths without GPUDirect RDMA on a machine type that does not support it."""

from nccl_inspect.judging.engine import Facts, Results, Rule
from nccl_inspect.judging.networks.gdr_use import paths_without_gdr
from nccl_inspect.judging.remedies import NOTHING
from nccl_inspect.util.wording import count, does, listed

RULE = Rule(
    name="gdr-not-possible",
    category="gpudirect",
    severity="info",
    title="This machine type has no GPUDirect RDMA: data is staged through host memory",
    supersedes=("gdr-disabled",),
)


def judge(facts: Facts) -> Results:
    """Judge by the platform only."""
    pairs = paths_without_gdr(facts)
    if not pairs or facts.platform is None or facts.platform.gdr is not False:
        return
    yield RULE.finding(
        f"{count(len(pairs), 'path')} over {listed(kind.detail for kind in pairs.kinds)} "
        f"{does(len(pairs), 'stage')} data in host memory, as expected here",
        cause=f"{facts.platform.name} has no GPUDirect RDMA ({facts.platform.source('gdr')})",
        impact="compare throughput with other machines without GPUDirect, not with p4d or p5",
        fix=[NOTHING],
        paths=pairs,
    )
