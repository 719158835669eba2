"""The ranks called different collectives, or with different sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from nccl_inspect.artifacts.causes import DIFFERENT
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.facts import Facts, first_said, hosts_in, hosts_with, ranks_in
from nccl_inspect.judging.hangs.watchdog import Wait, waits
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice
from nccl_inspect.util.wording import ranks_word

if TYPE_CHECKING:
    from nccl_inspect.artifacts.standstill import Standstill

RULE = Rule(
    name="collective-mismatch",
    category="failures",
    severity="error",
    title="Ranks called different collectives, or with different sizes",
    echoes=("ranks-in-error", "ranks-out-of-step", "watchdog-*"),
)
_SAME_SIZE = ("ALLREDUCE", "BROADCAST", "_BROADCAST_OOP", "REDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE")
"""Operations for which every rank must pass the same number of elements."""
_PAIRWISE = ("SEND", "RECV", "COALESCED", "UNKNOWN")
"""Here different names on different ranks are right, or tell nothing."""
_CALL = re.compile(
    r"Rank (\d+) is running collective: CollectiveFingerPrint"
    r"\((?:SequenceNumber=(\d+), )?OpType=(\w+)(?:, TensorShape=(\[[^\]]*\]))?"
)
"""What PyTorch compares; the rest are types, which tell little."""


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what NCCL says of messages that do not fit, and different calls of one number: by dumps or time-outs."""
    if recorded := flight_recorder.standstills(facts, DIFFERENT):
        yield from (_recorded(facts, still) for still in recorded)
        return
    sizes = facts.with_role("size-mismatch")
    stated = [notice for notice in facts.leading_to(RULE.name) if notice not in sizes]
    apart = _apart(waits(facts))
    if not (sizes or stated or apart):
        return
    said = [*stated, *sizes]
    ranks = ranks_in(said) | {wait.rank for wait in apart if wait.rank is not None} | set(_compared_ranks(said))
    odd = _odd(list(map(_call, apart)) if apart else _compared_calls(said)[1])
    yield RULE.finding(
        _summary(apart, said),
        cause=_cause(sizes=bool(sizes), certain=bool(stated or apart)),
        impact="ranks wait for each other for ever, or data goes wrong; NCCL does not compare calls itself",
        fix=[
            *([f"Look at {ranks_word(odd)} first: the others agree."] if odd else []),
            "Look for a collective in a branch that some ranks take: if rank == 0, an uneven last batch, an exception.",
            "TORCH_DISTRIBUTED_DEBUG=DETAIL   # PyTorch compares every call, and names the ranks that differ",
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL   # on all ranks: compare opCount, count and datatype",
            "Use the same NCCL_ALGO, NCCL_PROTO, NCCL_BUFFSIZE and NCCL release on all ranks.",
        ],
        confidence="certain" if stated or apart else "likely",
        ranks=odd or ranks,
        hosts=hosts_in(said),
        evidence=_evidence(apart) or first_said(said),
        fatal=True,
    )


def _recorded(facts: Facts, still: Standstill) -> Finding:
    """What the flight recorder shows: it names each call, also one that is over on some ranks."""
    parts = [*still.culprits, *still.waiting]
    ranks = flight_recorder.ranks_of(parts)
    places = flight_recorder.places(parts)
    few = flight_recorder.ranks_of(still.culprits) if still.waiting else set()
    return RULE.finding(
        f"ranks are in different calls: work {still.seq} of group {still.group.label} is "
        f"{flight_recorder.by_call(parts)}",
        cause=_cause(sizes=False, certain=True) + (f". The calls: {places}" if places else ""),
        impact=flight_recorder.IMPACT,
        fix=[
            f"Look at {ranks_word(few)} first: the others agree."
            if few
            else "Look for a collective in a branch that some ranks take: if rank == 0, an uneven last batch.",
            "TORCH_DISTRIBUTED_DEBUG=DETAIL   # PyTorch compares every call before it is made",
        ],
        ranks=few or ranks,
        hosts=hosts_with(facts.job, few or ranks),
        evidence=[*flight_recorder.lines(facts, still.culprits, 2), *flight_recorder.lines(facts, still.waiting, 2)],
        fatal=True,
    )


def _apart(found: list[Wait]) -> list[Wait]:
    """Waits of one group in the work of one number that are not for the same call."""
    by_work: dict[tuple[str, int], list[Wait]] = {}
    for wait in found:
        if wait.operation not in _PAIRWISE and wait.group is not None:
            by_work.setdefault((wait.group, wait.seq), []).append(wait)
    for same in by_work.values():
        calls = {(wait.operation, wait.numel if wait.operation in _SAME_SIZE else None) for wait in same}
        if len(calls) > 1 and len({wait.rank for wait in same}) > 1:
            return same
    return []


def _summary(apart: list[Wait], said: list[Notice]) -> str:
    """Who is in which call, else what is said of it first."""
    told = _told(apart) if apart else _compared(said)
    return f"ranks are in different calls: {told}" if told else said[0].message.partition(". If you believe")[0]


def _compared(said: list[Notice]) -> str:
    """The calls that PyTorch found to differ, with their ranks; empty where it names none."""
    numbers, calls = _compared_calls(said)
    told = _by_call(calls)
    return f"call {numbers.pop()} is {told}" if told and len(numbers) == 1 and None not in numbers else told


def _compared_calls(said: list[Notice]) -> tuple[set[str | None], list[tuple[str, int | None]]]:
    """The numbers of the calls that PyTorch found to differ, and what each rank called."""
    found = {match.groups() for notice in said for match in _CALL.finditer(notice.message)}
    numbers = {number for _, number, _, _ in found}
    if len({operation for _, _, operation, _ in found}) > 1:
        return numbers, [(operation, int(rank)) for rank, _, operation, _ in found]
    if len({shape for *_, shape in found}) > 1:
        return numbers, [(f"{operation} of shape {shape}", int(rank)) for rank, _, operation, shape in found]
    return numbers, []


def _odd(calls: Iterable[tuple[str, int | None]]) -> set[int]:
    """The only rank that made another call than all others, where these are two or more; of pairs nothing tells."""
    by_call: dict[str, set[int]] = {}
    for call, rank in calls:
        if rank is None:
            return set()
        by_call.setdefault(call, set()).add(rank)
    few, *others = sorted(by_call.values(), key=len) or [set()]
    return few if len(others) == 1 and len(few) == 1 < len(others[0]) else set()


def _compared_ranks(said: list[Notice]) -> Iterator[int]:
    return (int(match[1]) for notice in said for match in _CALL.finditer(notice.message))


def _by_call(calls: Iterable[tuple[str, int | None]]) -> str:
    """Each call with the ranks that are in it, as far as they are known."""
    by_call: dict[str, set[int]] = {}
    for call, rank in calls:
        by_call.setdefault(call, set()).update(() if rank is None else (rank,))
    words = ((call, ranks_word(ranks) if ranks else "a rank that is not named") for call, ranks in by_call.items())
    return "; ".join(f"{call} on {who}" for call, who in sorted(words))


def _told(apart: list[Wait]) -> str:
    return f"work {apart[0].seq} of process group {apart[0].group} is {_by_call(map(_call, apart))}"


def _call(wait: Wait) -> tuple[str, int | None]:
    return wait.operation + (f" of {wait.numel} elements" if wait.numel is not None else ""), wait.rank


def _evidence(apart: list[Wait]) -> list[Evidence]:
    """One line of each call."""
    first = {(wait.operation, wait.numel): wait.notice.evidence[0] for wait in reversed(apart)}
    return list(first.values())


def _cause(sizes: bool, certain: bool) -> str:
    if certain:
        return "the ranks do not make the same calls in the same order: a branch that only some take, or uneven data"
    assert sizes
    return (
        "two ranks disagree about a message: different collectives, sizes or types, or another NCCL_ALGO, NCCL_PROTO, "
        "NCCL_BUFFSIZE or NCCL release on some rank. On InfiniBand also forced relaxed ordering, on sockets bytes of "
        "a foreign program"
    )
