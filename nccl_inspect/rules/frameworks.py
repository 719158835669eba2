"""What PyTorch, JAX, TensorFlow and Horovod say of calls that they refuse, and of processes that others wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from nccl_inspect.judging import exceptions
from nccl_inspect.judging.check import Effects, Facts, Hit, first_evidence, value
from nccl_inspect.judging.ends import has_ended
from nccl_inspect.judging.exceptions import is_still, works_below
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.wording import ranks_word


def torch_call_refused(facts: Facts) -> Iterator[Hit | Effects]:
    """Find the exceptions, unless the program continued."""
    notices = facts.errors_of_rule("torch-call-refused")
    fatal = exceptions.exceptions_of(facts).fatal
    caught = [
        notice
        for notice in notices
        if not has_ended(facts, notice) or (id(notice) not in fatal and exceptions.continues(facts, None, notice))
    ]
    yield Effects(caught)
    kinds = group_values((notice.production, notice) for notice in notices if notice not in caught)
    for some in kinds.values():
        ranks = {
            rank for notice in some for name in ("global_rank", "rank") if (rank := value(notice, name)) is not None
        }
        odd = set[int]()
        if (
            some[0].production == "torch/models-differ"
        ):  # those whose number of parameters is not that of most ranks in the log
            counts = {int(value(one, "other_rank")): value(one, "other_params") for one in reversed(some)}
            counts |= {int(value(one, "rank")): value(one, "params") for one in some}
            (usual, number), *_ = Counter(counts.values()).most_common(1)
            odd = {rank for rank, count in counts.items() if count != usual} if 2 * number > len(counts) else odd
        some.sort(key=lambda one: value(one, "rank") not in odd)  # what an odd one itself says comes first
        yield Hit(some, {"odd": ranks_word(odd) if odd else ""}, ranks=odd or ranks, hosts=())


def task_lost(facts: Facts) -> Iterator[Hit | Effects]:
    """Find what says that processes no longer answer, with the names that it has in its own line or below."""
    notices = facts.errors_of_rule("task-lost")
    if facts.is_over():
        yield Effects(notices)
        return
    named = [notice for notice in notices if value(notice, "task") is not None]
    named += [
        one
        for one in facts.notices("frameworks/task-named", "frameworks/task-of-error")
        if any(
            line.source == other.source and 0 < other.order - line.order <= 4
            for notice in notices
            for line in notice.evidence
            for other in one.evidence
        )
    ]
    tasks = dict.fromkeys(f"task {value(one, 'task')} of {value(one, 'job')}" for one in named)
    if notices:
        known = {"tasks": list(tasks), "continues": works_below(facts, notices)}
        yield Hit(notices, known, evidence=first_evidence([*notices[:2], *named]))


def horovod_stalled(facts: Facts) -> Iterator[Hit | Effects]:
    """Find the ranks that did not submit what the others did."""
    ended, stalls = facts.errors_of_rule("horovod-stalled"), facts.notices("frameworks/horovod-stalled")
    names = facts.notices("frameworks/horovod-missing-rank", "frameworks/horovod-stalled-tensor")
    if not (ended or stalls) or facts.is_over():
        yield Effects(ended)
        return
    texts = [str(value(one, "late") or value(one, "ranks") or "") for one in names]
    ranks = {int(rank) for text in texts for rank in text.rstrip("!").split(", ") if rank.isdecimal()}
    is_over = ended and not works_below(facts, ended)
    known = {"late": ranks, "ended": is_over, "still": is_still(facts, [*stalls, *names])}
    yield Hit([*ended, *stalls], known, ranks=ranks, hosts=(), evidence=first_evidence([*stalls[:1], *names, *ended]))
