"""A process exited while NCCL still used its GPU: its last errors are an effect of the exit."""

from nccl_inspect.judging.engine import Facts, Layer, Results, Rule
from nccl_inspect.judging.facts import global_ranks, ranks_in
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.model.statements import job_end
from nccl_inspect.util.wording import ranks_word

RULE = Rule(
    name="driver-shutting-down",
    category="failures",
    layer=Layer.END,
    severity="warning",
    title="A process exited while NCCL still used its GPU",
)


def judge(facts: Facts) -> Results:
    """Judge CUDA calls that failed because the process was already exiting."""
    notices = [notice for notice in cuda.failed_calls(facts) if job_end.is_shutting_down(notice.event)]
    if not notices:
        return
    ending = ranks_in(notices)
    ended = {rank for comm in facts.job.communicators for rank in global_ranks(comm, comm.ended)}
    left = set(facts.job.ranks_seen) - ending - ended
    everybody = bool(ending) and not left
    who = ranks_word(ending) if ending else "a process whose rank is not in the log"
    yield RULE.finding(
        f"{who} exited while NCCL still used the GPU ('driver shutting down')",
        cause="the program exited without destroying its communicators: CUDA was already gone when NCCL released the "
        "GPU. "
        + (
            "All ranks exited like this or properly, as at the normal end of a job"
            if everybody
            else f"The log does not show why it exited{f', nor what became of {ranks_word(left)}' if left else ''}"
        ),
        impact="none on the paths; the errors themselves are harmless, because the process was already exiting",
        fix=[
            "torch.distributed.destroy_process_group()   # at the end of the program, in each rank",
            "In programs that call NCCL directly, call ncclCommDestroy for each communicator before main returns.",
            *([] if everybody else ["Look at the last output of these ranks: the reason for the exit precedes it."]),
        ],
        severity="info" if everybody else None,
        confidence="certain" if everybody else "possible",
        notices=notices,
    )
