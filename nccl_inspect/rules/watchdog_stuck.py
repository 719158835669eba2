"""PyTorch's watchdog made no progress, and the process aborted itself."""

from collections.abc import Iterator

from nccl_inspect.judging import exceptions
from nccl_inspect.judging.check import Effects, Facts, Hit, Notice, value
from nccl_inspect.judging.ends import process_ends
from nccl_inspect.judging.facts import hosts_with
from nccl_inspect.judging.statements import rank_prefix
from nccl_inspect.model.statements import usage


def find(facts: Facts) -> Iterator[Hit | Effects]:
    """Find the messages of the thread that monitors the watchdog, unless its process continues."""
    notices = facts.errors_of_rule("watchdog-stuck")
    survived = [notice for notice in notices if exceptions.came_up_below(facts, notice)]
    yield Effects(survived)
    stuck = [notice for notice in notices if notice not in survived]
    if not stuck:
        return
    is_over = _is_at_end(facts, stuck)
    ranks = {rank for notice in stuck if (rank := rank_prefix(notice)) is not None}
    seconds = next((limit for notice in stuck if (limit := value(notice, "seconds")) is not None), "")
    yield Hit(
        stuck,
        named={"ranks": ranks, "seconds": seconds},
        known=(*(("over",) if is_over else ()), *(("harmless",) if is_over and not facts.job.failed else ())),
        ranks=ranks,
        hosts=hosts_with(facts.job, ranks),
    )


def _is_at_end(facts: Facts, stuck: list[Notice]) -> bool:
    """Return whether the work was done; communicators may be aborted at the normal end, but also after a hang."""
    if process_ends(facts):
        return False
    destroyed = all(comm.state == "destroyed" for comm in usage.used_communicators(facts.job))
    return facts.is_over() and (destroyed or not any(exceptions.is_used_below(facts, notice) for notice in stuck))
