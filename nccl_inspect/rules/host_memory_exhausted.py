"""Host memory ran out in NCCL or in a plugin."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Layer, Results, Rule

RULE = Rule(
    name="host-memory-exhausted",
    category="failures",
    layer=Layer.SYSTEM,
    title="Host memory ran out when NCCL or a plugin asked for some",
    shows=("death",),
)


def judge(facts: Facts) -> Results:
    """Judge failed allocations of host memory; peer-death judges processes that the kernel killed."""
    notices = facts.errors_of_rule(RULE.name)
    if not notices:
        return
    yield stated_errors.finding(
        RULE,
        facts,
        notices,
        f"host memory ran out: {notices[0].message}",
        cause="the memory limit of the pod or job, or the memory of the host, is used up: data loaders, a "
        "checkpoint that every rank loads or gathers, pinned buffers, or /dev/shm, which counts as memory. Network "
        "buffers are locked memory",
        stops="the rank fails, and with it the job",
        fix=(
            "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory.current; free -g; ulimit -l   # in the container",
            "Give the pod more memory (resources.limits.memory); Slurm: --mem=0 requests all memory of the node.",
            "Use less memory: fewer data loader workers, sharded checkpoints.",
            "dmesg -T | grep -iE 'oom|killed process'   # on its host: did the kernel kill a process?",
        ),
        confirm="Look for a later exception of this rank.",
    )
