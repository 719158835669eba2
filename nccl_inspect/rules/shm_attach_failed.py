"""A shared memory segment that another rank created could not be opened."""

from nccl_inspect.judging.engine import Facts, Notice, Results, Rule, first_evidence, value

RULE = Rule(
    name="shm-attach-failed",
    category="intra-node path",
    title="A shared memory segment that another rank created could not be opened",
    shows=("no-shm-access",),
    local=True,
)
_NOT_THERE = 2
_FILE = "misc/shmutils.cc"


def judge(facts: Facts) -> Results:
    """Judge failed attaching if nothing else failed: otherwise the segment's creator ended for another reason."""
    failed = [notice for notice in facts.notices("nccl/shm-segment-failed") if value(notice, "what") == "attaching to"]
    failed += facts.errors_of_rule(RULE.name)
    others = [n for n in facts.errors() if n.level == "WARN" and not _is_about_shm(n)]
    removed = [notice for notice in facts.notices("nccl/shm-unlink-failed") if _is_missing(notice)]
    if others or not (failed or (removed and facts.job.failed)):
        return
    what = "of another rank could not be opened" if failed else "was gone before NCCL removed it"
    calls = [notice for notice in facts.notices("nccl/system-call-failed") if _is_about_shm(notice)]
    notices = [*calls, *failed, *removed]
    failed = failed or removed
    reason = next((str(error) for notice in failed if (error := value(notice, "error"))), "")
    yield RULE.finding(
        f"a shared memory segment {what}" + (f": {reason}" if reason else ""),
        cause=_cause(failed),
        impact="the rank fails, and with it the job",
        fix=[
            "Give the containers of a host one /dev/shm (hostIPC: true, or docker run --ipc=host) and one "
            "user id; or use one container for all GPUs.",
            "RemoveIPC=no   # in /etc/systemd/logind.conf, then systemctl restart systemd-logind; or run as "
            "a system user (uid < 1000)",
            "ls -l /dev/shm/nccl-*   # on the host while the job starts: who creates and who removes them?",
        ],
        confidence="likely",
        notices=failed,
        evidence=first_evidence(notices),
        fatal=True,
    )


def _cause(failed: list[Notice]) -> str:
    if any(map(_is_missing, failed)):
        return (
            "the file is gone, or was never in this rank's /dev/shm: something cleans /dev/shm (systemd-logind with "
            "RemoveIPC=yes at the end of a session, a cron job), or each container has its own /dev/shm"
        )
    if any(value(notice, "error") for notice in failed):
        return "the file cannot be opened or mapped: no permission (another user's file), or not enough memory"
    return (
        "the line does not say why. Usually each container or pod of a host has its own /dev/shm, without this file; "
        "or something removed it, another user created it, or there is not enough memory"
    )


def _is_about_shm(notice: Notice) -> bool:
    """Whether it is about a segment; the line of the failed call does not name it."""
    is_call = notice.production == "nccl/system-call-failed" and (notice.location or "").startswith(_FILE)
    return is_call or "shm-segment" in notice.roles


def _is_missing(notice: Notice) -> bool:
    return value(notice, "errno") == _NOT_THERE or "No such file" in str(value(notice, "error"))
