"""The limit on open files of a process was reached."""

from nccl_inspect.judging.engine import Facts, Layer, Results, Rule

RULE = Rule(
    name="open-files-limit",
    category="failures",
    layer=Layer.SYSTEM,
    title="The limit on open files was reached",
    supersedes=("internal-error", "transfer-failed"),
    local=True,
)
_OF_PROCESS, _OF_HOST = "Too many open files", "Too many open files in system"
"""The C library's text for EMFILE and ENFILE."""


def judge(facts: Facts) -> Results:
    """Judge warnings with this error, whichever call could not open a file or a socket."""
    failed = [notice for notice in facts.job.notices if notice.level == "WARN" and _OF_PROCESS in notice.message]
    failed += facts.errors_of_rule(RULE.name)
    if not failed:
        return
    of_host = any(_OF_HOST in notice.message for notice in failed)
    yield RULE.finding(
        f"no more files or sockets can be opened: {failed[0].message}",
        cause="the system-wide limit on open files (fs.file-max) is reached"
        if of_host
        else "the process has as many open files as its limit (nofile) allows. NCCL opens sockets and files for each "
        "peer and channel: thousands at scale",
        impact="the connection fails, and the job stops",
        fix=[
            "sysctl -w fs.file-max=2097152   # on the host"
            if of_host
            else "ulimit -n   # under the launcher, too: srun bash -c 'ulimit -n'; NVIDIA's manual sets 131072",
            "LimitNOFILE=1048576   # systemd unit of slurmd or containerd, then restart it",
            "--ulimit nofile=1048576   # option of docker run",
            "ls -l /proc/<pid>/fd   # does the program itself leave files open?",
        ],
        notices=failed,
        fatal=facts.job.failed or not facts.job.paths,
    )
