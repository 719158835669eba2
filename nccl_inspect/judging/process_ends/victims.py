"""Ranks that gave up because another one did not come, or was gone: whom they may have waited for."""

from __future__ import annotations

from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.process_ends import exceptions, ray
from nccl_inspect.judging.process_ends.process_end import ProcessEnd
from nccl_inspect.util.wording import ranks_word


def without(ends: list[ProcessEnd]) -> list[ProcessEnd]:
    """Those that ended by themselves, if there are any."""
    return [one for one in ends if one.echo is None] or ends


def suspects(facts: Facts, ends: list[ProcessEnd]) -> set[int]:
    """Who may have kept the others waiting: the ranks that these name, or the only one that printed no traceback."""
    if named := exceptions.absent_ranks(facts):
        return named
    # Of tasks Ray shows the exception that the driver met with first.
    if any(ray.is_of_task(one.notice) for one in ends):
        return set()
    gave_up = {rank for one in ends for rank in one.ranks} | {one.rank for one in exceptions.found(facts).echoes}
    ranks = set(facts.job.ranks_seen)
    sizes = {comm.nranks for comm in facts.job.communicators}
    silent = ranks - gave_up
    return silent if len(silent) == 1 and sizes and max(sizes) == len(ranks) else set()


def what(facts: Facts, ends: list[ProcessEnd]) -> str:
    """Who gave up, and whom they may have waited for."""
    first = ends[0]
    ranks = {rank for one in ends for rank in one.ranks}
    suspected = set() if exceptions.absent_ranks(facts) else suspects(facts, ends)
    who = first.who if len(ends) == 1 or not ranks else ranks_word(ranks)
    hint = f"; possibly because of {ranks_word(suspected)}, which printed no traceback" if suspected else ""
    return f"{who} {first.how}{hint}"


def fix(suspected: set[int]) -> list[str]:
    """What to do where ranks gave up."""
    who = ranks_word(suspected) if suspected else "every rank"
    return [
        f"Look at {who} first: its own output, its last step.",
        f"py-spy dump --pid <pid>   # on {who}, before the time limit: where does it stand?",
        "dmesg -T | grep -iE 'oom|xid|segfault'   # on its host",
    ]
