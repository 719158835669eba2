"""The limit on locked memory prevents NICs from registering buffers."""

from nccl_inspect.judging.engine import Facts, Finding, Layer, Notice, Results, Rule, value
from nccl_inspect.judging.remedies import LOCKED_MEMORY_IN_POD, RDMA_IN_DOCKER

RULE = Rule(
    name="ib-memlock",
    category="network",
    layer=Layer.SYSTEM,
    title="Buffers cannot be registered with the NIC: the limit on locked memory",
    shows=("no-locked-memory",),
    supersedes=("efa-init-failed", "host-memory-exhausted", "memory-registration-failed", "transfer-failed"),
    local=True,
)
_CALLS = ("create_cq", "create_qp", "reg_mr", "reg_mr_iova2", "reg_dmabuf_mr")
"""Calls that lock memory."""
_NO_MEMORY = "Cannot allocate memory"
_ENOMEM = 12
"""aws-ofi-nccl prints it as libfabric returns it, usually negative."""
_ABORTS = "libfabric/libfabric-efa-abort-error"
"""libfabric ends the process when it cannot post its own receive buffers, which it registers first."""


def judge(facts: Facts) -> Results:
    """Judge calls that fail to lock memory; before 2.14 NCCL does not print why a call failed."""
    calls = [notice for notice in facts.notices("nccl/ib-call-failed") if value(notice, "name") in _CALLS]
    ofi = [*facts.with_role("memory-not-registered"), *facts.notices(_ABORTS)]
    failed = [
        *facts.errors_of_rule(RULE.name),
        *(notice for notice in calls if value(notice, "error") == _NO_MEMORY),
        *(notice for notice in ofi if abs(value(notice, "rc") or 0) == _ENOMEM),
    ]
    if failed:
        yield _finding(failed, "less often the host or its memory cgroup is out of memory", "likely")
    elif calls and all(value(notice, "error") is None for notice in calls):
        yield _finding(calls, "or it is memory that the NIC cannot reach: 2.14 and later print the reason", "possible")


def _finding(failed: list[Notice], other: str, confidence: str) -> Finding:
    return RULE.finding(
        f"the NIC cannot lock memory: {failed[0].message}",
        cause="the limit on locked memory (memlock) of the process is too small, or the container lacks IPC_LOCK; "
        f"{other}",
        impact="the rank cannot connect, and the job stops",
        fix=[
            "ulimit -l   # must be unlimited under the launcher, too: srun bash -c 'ulimit -l'",
            RDMA_IN_DOCKER,
            LOCKED_MEMORY_IN_POD,
            "LimitMEMLOCK=infinity   # systemd unit of slurmd or containerd, then restart it; limits.conf "
            "needs a new login",
        ],
        confidence=confidence,
        notices=failed,
        fatal=True,
    )
