"""PyTorch's watchdog made no progress, and the process aborted itself."""

from nccl_inspect.judging.engine import Effects, Facts, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import hosts_with
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.process_ends.ends import process_ends
from nccl_inspect.judging.statements import rank_prefix
from nccl_inspect.model.statements import usage
from nccl_inspect.util.wording import ranks_word

RULE = Rule(
    name="watchdog-stuck",
    category="failures",
    tells=("watchdog-stuck",),
    title="PyTorch's watchdog itself got stuck, and ended the process",
    shows=("death",),
)
_AT_END = (
    "all communicators ended normally, so no collective hangs: usually the process did not end in time because a "
    "CUDA call did not return, or because it still had work to do, such as writing a checkpoint"
)


def judge(facts: Facts) -> Results:
    """Judge the messages of the thread that monitors the watchdog."""
    notices = facts.errors_of_rule(RULE.name)
    survived = [notice for notice in notices if exceptions.came_up_below(facts, notice)]
    yield Effects(survived)
    stuck = [notice for notice in notices if notice not in survived]
    if not stuck:
        return
    is_over = _is_at_end(facts, stuck)
    ranks = {rank for notice in stuck if (rank := rank_prefix(notice)) is not None}
    seconds = next((limit for notice in stuck if (limit := value(notice, "seconds")) is not None), None)
    yield RULE.finding(
        f"PyTorch's watchdog {f'of {ranks_word(ranks)} ' if ranks else ''}made no progress"
        + (f" for {seconds} s" if seconds is not None else ""),
        cause=_AT_END
        if is_over
        else "unknown from this log; likely: a CUDA or NCCL call did not return, or another thread of the program held "
        "Python's lock (GIL) in such a call. The reason is usually a collective that hangs (a rank that did not "
        "arrive, GPU or network), or a process that waits for one at its end; if nothing hangs, a rank was slow to "
        "load, compile or write",
        impact="PyTorch ends the process" + (" after its work with NCCL" if is_over else ", and with it the job"),
        fix=[
            "Look at the output of all ranks: the rank that ended first, or has its own error, is the cause.",
            "py-spy dump --native --pid <pid>   # on every rank, while they hang: in which call is each?",
            "dmesg -T | grep -i xid   # on the hosts: every call hangs on a GPU that no longer responds",
            "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1   # the flight recorder: the "
            "last calls of every rank",
            "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800   # only if nothing hangs and a rank is merely slow",
        ],
        confidence="likely",
        ranks=ranks,
        hosts=hosts_with(facts.job, ranks),
        evidence=first_evidence(stuck),
        fatal=facts.job.failed or not is_over,
    )


def _is_at_end(facts: Facts, stuck: list[Notice]) -> bool:
    """Whether the work was done; communicators may be aborted at the normal end, but also after a hang."""
    if process_ends(facts):
        return False
    destroyed = all(comm.state == "destroyed" for comm in usage.in_use(facts.job))
    return facts.is_over() and (destroyed or not any(exceptions.is_used_below(facts, notice) for notice in stuck))
