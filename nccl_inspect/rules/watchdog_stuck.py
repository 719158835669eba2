"""PyTorch's watchdog did not move, and the process ended itself."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Effects, Result, Rule
from nccl_inspect.judging.facts import Facts, first_said, hosts_with
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.process_ends.ends import process_ends
from nccl_inspect.judging.statements import rank_in_front, value
from nccl_inspect.model.job import Notice
from nccl_inspect.model.statements import usage
from nccl_inspect.util.wording import ranks_word

RULE = Rule(
    name="watchdog-stuck",
    category="failures",
    severity="error",
    title="PyTorch's watchdog itself got stuck, and ended the process",
)
_AT_END = (
    "all communicators came to their end, so no collective hangs: mostly the process did not end in time, because a "
    "call of CUDA did not return, or it had still something to do, such as a checkpoint to write"
)


def judge(facts: Facts) -> Iterator[Result]:
    """Judge what the thread says that looks after the watchdog."""
    told = facts.leading_to(RULE.name)
    survived = [notice for notice in told if exceptions.came_up_below(facts, notice)]
    yield Effects(survived)
    said = [notice for notice in told if notice not in survived]
    if not said:
        return
    is_over = _is_at_end(facts, said)
    ranks = {rank for notice in said if (rank := rank_in_front(notice)) is not None}
    seconds = next((found for notice in said if (found := value(notice, "seconds")) is not None), None)
    yield RULE.finding(
        f"PyTorch's watchdog {f'of {ranks_word(ranks)} ' if ranks else ''}did not move"
        + (f" for {seconds} s" if seconds is not None else ""),
        cause=_AT_END
        if is_over
        else "unknown from this log; likely: "
        "a call of CUDA or NCCL did not return to it, or another thread of the program held "
        "Python's lock (GIL) in such a call. Behind that is mostly a collective that hangs (a rank that did not come, "
        "GPU or network), or the end of a process that waits for one; where nothing hangs: a rank that was slow to "
        "load, compile or write",
        impact="PyTorch ends the process" + (" after its work with NCCL" if is_over else ", and with it the job"),
        fix=[
            "Look at the output of all ranks: one that ended first, or has an error of its own, is the cause.",
            "py-spy dump --native --pid <pid>   # on every rank, while they hang: in which call is each?",
            "dmesg -T | grep -i xid   # on the hosts: a GPU that does not answer any more hangs every call",
            "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1   # the flight recorder: the "
            "last calls of every rank",
            "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800   # only where nothing hangs and a rank is merely slow",
        ],
        confidence="likely",
        ranks=ranks,
        hosts=hosts_with(facts.job, ranks),
        evidence=first_said(said),
        fatal=facts.job.failed or not is_over,
    )


def _is_at_end(facts: Facts, said: list[Notice]) -> bool:
    """Whether the work was done; communicators may be aborted at the normal end, but also after a hang."""
    if process_ends(facts):
        return False
    destroyed = all(comm.state == "destroyed" for comm in usage.in_use(facts.job))
    return facts.is_over() and (destroyed or not any(exceptions.is_used_below(facts, notice) for notice in said))
