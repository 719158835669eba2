"""The limit on processes and threads was reached."""

from nccl_inspect.judging.engine import Facts, Layer, Notice, Results, Rule, value

RULE = Rule(
    name="process-limit",
    category="failures",
    layer=Layer.SYSTEM,
    title="No more threads can be started: the process limit was reached",
    supersedes=("internal-error",),
    local=True,
)
_OF_LIBRARIES = "thread-refused"
"""Role of lines from numeric libraries that the program uses beside NCCL."""
_NO_MORE = "Resource temporarily unavailable"
"""The C library's text for EAGAIN."""


def judge(facts: Facts) -> Results:
    """Judge threads that could not be started; other calls get the same error for other reasons."""
    calls = [*facts.notices("nccl/system-call-failed", "nccl/thread-failed"), *facts.with_role(_OF_LIBRARIES)]
    failed = [notice for notice in calls if _OF_LIBRARIES in notice.roles or _is_start(notice)]
    if not failed:
        return
    is_dead = facts.job.failed or not facts.job.paths
    yield RULE.finding(
        f"no more threads can be started: {failed[0].message}",
        cause="the user, the container or the host reached its limit of processes and threads (ulimit -u, pids of the "
        "cgroup); rarely, there is no memory for the stack",
        impact="NCCL cannot start its helper threads, and the job stops"
        if is_dead
        else "NCCL could not start a helper thread at that time; the job continued",
        fix=[
            "ulimit -u; cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids.current   # in the container, beside the job",
            "--pids-limit=-1   # option of docker run; Kubernetes: podPidsLimit of the kubelet",
            "OMP_NUM_THREADS=8   # fewer threads in the program: each data loader starts its own pool",
            "LimitNPROC=infinity TasksMax=infinity   # in the systemd unit of slurmd or containerd; then restart it",
        ],
        confidence="likely",
        notices=failed,
        fatal=is_dead,
    )


def _is_start(notice: Notice) -> bool:
    starts = value(notice, "call") == "pthread_create" or value(notice, "__step") == "creation"
    return starts and bool(value(notice, "error") == _NO_MORE)
