"""The ranks called different collectives, or with different sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from nccl_inspect.artifacts.causes import DIFFERENT
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.facts import hosts_in, hosts_with, ranks_in
from nccl_inspect.judging.hangs.watchdog import Wait, waits
from nccl_inspect.util.wording import ranks_word

if TYPE_CHECKING:
    from nccl_inspect.artifacts.standstill import Standstill
from nccl_inspect.judging.engine import (
    Account,
    Evidence,
    Facts,
    Finding,
    Notice,
    Results,
    Rule,
    first_evidence,
)
from nccl_inspect.judging.retelling import retell
from nccl_inspect.util.patterns import later

RULE = Rule(
    name="collective-mismatch",
    category="failures",
    tells=("calls-differ",),
    title="Ranks called different collectives, or with different sizes",
)
_SAME_SIZE = ("ALLREDUCE", "BROADCAST", "_BROADCAST_OOP", "REDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE")
"""Operations for which every rank must pass the same number of elements."""
_PAIRWISE = ("SEND", "RECV", "COALESCED", "UNKNOWN")
"""Operations whose names may differ between ranks, or mean nothing."""
_CALL = later(
    r"Rank (\d+) is running collective: CollectiveFingerPrint"
    r"\((?:SequenceNumber=(\d+), )?OpType=(\w+)(?:, TensorShape=(\[[^\]]*\]))?"
)
"""What PyTorch compares, without the types, which add little."""


def judge(facts: Facts) -> Results:
    """Judge messages that NCCL reports as mismatched, and different calls of one number: by dumps or time-outs."""
    if standstills := flight_recorder.standstills(facts, DIFFERENT):
        yield from (_from_dumps(facts, standstill) for standstill in standstills)
        return
    sizes = facts.with_role("size-mismatch")
    stated = [notice for notice in facts.errors_of_rule(RULE.name) if notice not in sizes]
    mismatched = _mismatched(waits(facts))
    if not (sizes or stated or mismatched):
        return
    notices = [*stated, *sizes]
    ranks = (
        ranks_in(notices) | {wait.rank for wait in mismatched if wait.rank is not None} | set(_pytorch_ranks(notices))
    )
    outliers = _outlier(list(map(_call, mismatched)) if mismatched else _pytorch_calls(notices)[1])
    yield RULE.finding(
        _summary(mismatched, notices),
        cause=_cause(sizes=bool(sizes), certain=bool(stated or mismatched)),
        impact="ranks wait for each other forever, or results are wrong; NCCL itself does not compare calls",
        fix=[
            *([f"Look at {ranks_word(outliers)} first: the others agree."] if outliers else []),
            "Look for a collective in a branch that some ranks take: if rank == 0, an uneven last batch, an exception.",
            "TORCH_DISTRIBUTED_DEBUG=DETAIL   # PyTorch compares every call and names the ranks that differ",
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL   # on all ranks: compare opCount, count and datatype",
            "Use the same NCCL_ALGO, NCCL_PROTO, NCCL_BUFFSIZE and NCCL release on all ranks.",
        ],
        confidence="certain" if stated or mismatched else "likely",
        ranks=outliers or ranks,
        hosts=hosts_in(notices),
        evidence=_evidence(mismatched) or first_evidence(notices),
        fatal=True,
    )


def tell(facts: Facts, account: Account) -> Finding:
    """Describe ranks whose call differs from that of the others under the same number."""
    return retell(
        RULE,
        account,
        _cause(sizes=False, certain=True),
        "Look at {who} first: the others agree.",
        "TORCH_DISTRIBUTED_DEBUG=DETAIL   # PyTorch compares every call and names the ranks that differ",
        impact="ranks wait for each other forever, or results are wrong; NCCL itself does not compare calls",
    )


def _from_dumps(facts: Facts, standstill: Standstill) -> Finding:
    """The finding from the flight recorder, which names each call, even one that some ranks completed."""
    parts = [*standstill.culprits, *standstill.waiting]
    ranks = flight_recorder.ranks_of(parts)
    places = flight_recorder.places(parts)
    outliers = flight_recorder.ranks_of(standstill.culprits) if standstill.waiting else set()
    return RULE.finding(
        f"ranks are in different calls: work {standstill.seq} of group {standstill.group.label} is "
        f"{flight_recorder.by_call(parts)}",
        cause=_cause(sizes=False, certain=True) + (f". The calls: {places}" if places else ""),
        impact=flight_recorder.IMPACT,
        fix=[
            f"Look at {ranks_word(outliers)} first: {_agreeing(standstill)}."
            if outliers
            else "Look for a collective in a branch that some ranks take: if rank == 0, an uneven last batch.",
            "TORCH_DISTRIBUTED_DEBUG=DETAIL   # PyTorch compares every call before it is made",
        ],
        ranks=outliers or ranks,
        hosts=hosts_with(facts.job, outliers or ranks),
        evidence=[
            *flight_recorder.lines(facts, standstill.culprits, 2),
            *flight_recorder.lines(facts, standstill.waiting, 2),
        ],
        fatal=True,
    )


def _agreeing(standstill: Standstill) -> str:
    """Return who makes the usual call."""
    if not standstill.peers:
        return "the others agree"
    usual = ranks_word(flight_recorder.ranks_of(standstill.waiting))
    return f"the other groups {standstill.group.label} make the call of {usual}"


def _mismatched(pending: list[Wait]) -> list[Wait]:
    """Waits of one group for one work number, but in different calls."""
    by_work: dict[tuple[str, int], list[Wait]] = {}
    for wait in pending:
        if wait.operation not in _PAIRWISE and wait.group is not None:
            by_work.setdefault((wait.group, wait.seq), []).append(wait)
    for same in by_work.values():
        calls = {(wait.operation, wait.numel if wait.operation in _SAME_SIZE else None) for wait in same}
        if len(calls) > 1 and len({wait.rank for wait in same}) > 1:
            return same
    return []


def _summary(mismatched: list[Wait], notices: list[Notice]) -> str:
    """Return which rank is in which call, else the first message."""
    calls = _work_by_call(mismatched) if mismatched else _pytorch_summary(notices)
    return f"ranks are in different calls: {calls}" if calls else notices[0].message.partition(". If you believe")[0]


def _pytorch_summary(notices: list[Notice]) -> str:
    """The calls that differ according to PyTorch, with their ranks; empty if it names none."""
    numbers, calls = _pytorch_calls(notices)
    text = _by_call(calls)
    return f"call {numbers.pop()} is {text}" if text and len(numbers) == 1 and None not in numbers else text


def _pytorch_calls(notices: list[Notice]) -> tuple[set[str | None], list[tuple[str, int | None]]]:
    """The numbers of the calls that differ according to PyTorch, and the call of each rank."""
    fingerprints = {match.groups() for notice in notices for match in _CALL.finditer(notice.message)}
    numbers = {number for _, number, _, _ in fingerprints}
    if len({operation for _, _, operation, _ in fingerprints}) > 1:
        return numbers, [(operation, int(rank)) for rank, _, operation, _ in fingerprints]
    if len({shape for *_, shape in fingerprints}) > 1:
        return numbers, [(f"{operation} of shape {shape}", int(rank)) for rank, _, operation, shape in fingerprints]
    return numbers, []


def _outlier(calls: Iterable[tuple[str, int | None]]) -> set[int]:
    """The only rank whose call differs from that of two or more others; of two ranks, either may be wrong."""
    by_call: dict[str, set[int]] = {}
    for call, rank in calls:
        if rank is None:
            return set()
        by_call.setdefault(call, set()).add(rank)
    few, *others = sorted(by_call.values(), key=len) or [set()]
    return few if len(others) == 1 and len(few) == 1 < len(others[0]) else set()


def _pytorch_ranks(notices: list[Notice]) -> Iterator[int]:
    return (int(match[1]) for notice in notices for match in _CALL.finditer(notice.message))


def _by_call(calls: Iterable[tuple[str, int | None]]) -> str:
    """Each call with the ranks that are in it, if known."""
    by_call: dict[str, set[int]] = {}
    for call, rank in calls:
        by_call.setdefault(call, set()).update(() if rank is None else (rank,))
    words = ((call, ranks_word(ranks) if ranks else "a rank that is not named") for call, ranks in by_call.items())
    return "; ".join(f"{call} on {who}" for call, who in sorted(words))


def _work_by_call(mismatched: list[Wait]) -> str:
    return f"work {mismatched[0].seq} of process group {mismatched[0].group} is {_by_call(map(_call, mismatched))}"


def _call(wait: Wait) -> tuple[str, int | None]:
    return wait.operation + (f" of {wait.numel} elements" if wait.numel is not None else ""), wait.rank


def _evidence(mismatched: list[Wait]) -> list[Evidence]:
    """One line of each call."""
    first = {(wait.operation, wait.numel): wait.notice.evidence[0] for wait in reversed(mismatched)}
    return list(first.values())


def _cause(sizes: bool, certain: bool) -> str:
    if certain:
        return "the ranks do not make the same calls in the same order: a branch that only some take, or uneven data"
    assert sizes
    return (
        "two ranks disagree about a message: different collectives, sizes or types, or a different NCCL_ALGO, "
        "NCCL_PROTO, NCCL_BUFFSIZE or NCCL release on some rank. Also possible: forced relaxed ordering on InfiniBand, "
        "or bytes from an unrelated program on sockets"
    )
