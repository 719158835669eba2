"""Host memory ran out in NCCL or in a plugin."""

from collections.abc import Iterator

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.finding import Finding, NotJudged

RULE = Rule(
    name="host-memory-exhausted",
    category="failures",
    severity="error",
    title="Host memory ran out when NCCL or a plugin asked for some",
    echoes=("gin-failed", "transfer-failed", "ucx-failed"),
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge allocations on the host that failed; processes that the kernel killed are the affair of peer-death."""
    said = facts.leading_to(RULE.name)
    if not said:
        return
    yield stated_errors.finding(
        RULE,
        facts,
        said,
        f"no host memory was left: {said[0].message}",
        cause="the memory limit of the pod or job, or the memory of the host, is used up: data loaders, a "
        "checkpoint that "
        "every rank loads or gathers, pinned buffers, or /dev/shm, which counts as memory. Buffers for the network are "
        "locked memory, too",
        stops="the rank fails, and with it the job",
        fix=(
            "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory.current; free -g; ulimit -l   # in the container",
            "Give the pod more memory (resources.limits.memory); Slurm: --mem=0 is all of the node.",
            "Use less: fewer data loader workers, checkpoints loaded and saved in shards.",
            "dmesg -T | grep -iE 'oom|killed process'   # on its host: did the kernel kill a process?",
        ),
        confirm="Look for an exception of this rank below it.",
    )
