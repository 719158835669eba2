"""Network paths without GPUDirect RDMA on a machine type that does not support it."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Results, Rule
from nccl_inspect.judging.networks.gdr_use import lacking, paths_without_gdr
from nccl_inspect.judging.remedies import NOTHING
from nccl_inspect.judging.statements import find_text
from nccl_inspect.util.wording import count, does, listed

RULE = Rule(
    name="gdr-not-possible",
    category="gpudirect",
    severity="info",
    title="GPUDirect RDMA is not possible on this machine",
    may_cause=("no-nvshmem", "no-ucx"),
    supersedes=("gdr-disabled",),
)


def judge(facts: Facts) -> Results:
    """Judge by the platform, or by what other libraries say of peer memory."""
    if stated := facts.errors_of_rule(RULE.name):
        yield stated_errors.finding(
            RULE,
            facts,
            stated,
            f"NICs cannot reach GPU memory: {find_text(stated[0])}",
            cause="the module nvidia-peermem is not loaded on the host, and DMA-BUF is not available either: it "
            "needs the "
            "open kernel modules of the driver, Linux 5.12 and a libibverbs that knows it",
            stops="the transport that needs GPUDirect RDMA is skipped, and the library may have no other",
            fix=(
                "modprobe nvidia-peermem; lsmod | grep peermem   # on the host, once the RDMA modules are loaded",
                "cat /proc/driver/nvidia/version   # 'Open Kernel Module': DMA-BUF does not need nvidia-peermem",
                "driver.rdma.enabled=true   # GPU operator: it then loads the module",
            ),
            confirm="Check whether the library continues with another transport.",
        )
    pairs, lacks = paths_without_gdr(facts), lacking(facts)
    if not pairs or lacks is None:
        return
    yield RULE.finding(
        f"{count(len(pairs), 'path')} over {listed(kind.detail for kind in pairs.kinds)} "
        f"{does(len(pairs), 'stage')} data in host memory, as expected here",
        cause=f"{lacks[0]} has no GPUDirect RDMA ({lacks[1]})",
        impact="compare throughput with other machines without GPUDirect, not with p4d or p5",
        fix=[NOTHING],
        paths=pairs,
    )
