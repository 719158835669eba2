"""A process exited while NCCL still used its GPU: its last errors are an effect of the exit."""

from collections.abc import Iterator

from nccl_inspect.judging.check import Facts, Hit
from nccl_inspect.judging.facts import global_ranks, ranks_in
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.model.statements import job_failure
from nccl_inspect.util.wording import ranks_word


def find(facts: Facts) -> Iterator[Hit]:
    """Find CUDA calls that failed because the process was already exiting, and the ranks that did not exit."""
    notices = [notice for notice in cuda.failed_calls(facts) if job_failure.is_shutting_down(notice.event)]
    if not notices:
        return
    ending = ranks_in(notices)
    ended = {rank for comm in facts.job.communicators for rank in global_ranks(comm, comm.ended)}
    left = set(facts.job.ranks_seen) - ending - ended
    yield Hit(
        notices,
        named={
            "who": ranks_word(ending) if ending else "a process whose rank is not in the log",
            "others": f", nor what became of {ranks_word(left)}" if left else "",
        },
        known=("not all",) if left or not ending else (),
    )
