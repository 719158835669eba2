"""The kernel log shows that a process crashed."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Results, Rule, value
from nccl_inspect.judging.evidence import kernel_log
from nccl_inspect.judging.statements import message_of

RULE = Rule(
    name="process-crashed",
    category="failures",
    tells=("process-crashed",),
    title="The kernel log shows that a process crashed with a segmentation fault",
    shows=("death",),
)


def judge(facts: Facts) -> Results:
    """Judge kernel lines, which may be older than the job or about another program."""
    crashes = facts.errors_of_rule(RULE.name)
    if not crashes:
        return
    is_rank = not {
        value(notice, "pid") for notice in crashes if kernel_log.confidence(facts, notice) != "possible"
    }.isdisjoint(_ranks(facts))
    yield stated_errors.finding(
        RULE,
        facts,
        crashes,
        f"a process crashed: {message_of(crashes[0]).strip()}",
        cause="a process accessed invalid memory: a bug in the library that the line names or in its caller, libraries "
        "of several releases in one process, or damaged memory. "
        + ("A rank of this job has the pid of the line" if is_rank else "The line may be about another program"),
        stops="the process is gone, and a communicator does not survive the loss of a rank",
        fix=(
            "Compare the pid and time of the line with the ranks of the job, and read the end of that rank's output.",
            "PYTHONFAULTHANDLER=1   # Python prints the stack when it crashes; or use ulimit -c unlimited and gdb",
            "ldd <library>; echo $LD_LIBRARY_PATH $LD_PRELOAD   # is there a second copy of NCCL, CUDA or libfabric?",
        ),
        confirm="Check whether a rank of the job has the pid in this line.",
        confidence="likely" if is_rank else "possible",
        deadly=is_rank,
    )


def _ranks(facts: Facts) -> set[int]:
    """The pids of processes with ranks; in a container, pids differ from those on the host."""
    return {last.process.pid for last in facts.job.last_lines if last.ranks}
