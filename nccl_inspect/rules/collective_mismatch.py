"""The ranks called different collectives, or with different sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nccl_inspect.artifacts.causes import DIFFERENT
from nccl_inspect.judging.check import Facts, Hit, Notice, first_evidence
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.facts import hosts_in, hosts_with, ranks_in
from nccl_inspect.judging.watchdog import Wait, waits
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.wording import ranks_word

_SAME_SIZE = ("ALLREDUCE", "BROADCAST", "_BROADCAST_OOP", "REDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE")
"""Operations for which every rank must pass the same number of elements."""
_PAIRWISE = ("SEND", "RECV", "COALESCED", "UNKNOWN")
"""Operations whose names may differ between ranks, or mean nothing."""
_CALL = compile_later(
    r"Rank (\d+) is running collective: CollectiveFingerPrint"
    r"\((?:SequenceNumber=(\d+), )?OpType=(\w+)(?:, TensorShape=(\[[^\]]*\]))?"
)
"""What PyTorch compares, without the types, which add little."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find messages that NCCL reports as mismatched, and different calls of one number: by dumps or time-outs."""
    if standstills := flight_recorder.standstills(facts, DIFFERENT):
        for standstill in standstills:
            parts = [*standstill.culprits, *standstill.waiting]
            outliers = flight_recorder.ranks_of(standstill.culprits) if standstill.waiting else set()
            ranks = outliers or flight_recorder.ranks_of(parts)
            yield Hit(
                named={
                    "recorded": f"work {standstill.seq} of group {standstill.group.label}",
                    "calls": flight_recorder.by_call(parts),
                    "places": flight_recorder.list_frames(parts),
                    "outliers": outliers,
                    "peers": standstill.group.label if standstill.peers else "",
                    "usual": flight_recorder.ranks_of(standstill.waiting),
                },
                ranks=ranks,
                hosts=hosts_with(facts.job, ranks),
                evidence=[
                    *flight_recorder.lines(facts, standstill.culprits, 2),
                    *flight_recorder.lines(facts, standstill.waiting, 2),
                ],
            )
        return
    sizes = facts.with_role("size-mismatch")
    stated = [notice for notice in facts.errors_of_rule("collective-mismatch") if notice not in sizes]
    mismatched = _find_mismatches(waits(facts))
    if not (sizes or stated or mismatched):
        return
    notices = [*stated, *sizes]
    ranks = ranks_in(notices) | {wait.rank for wait in mismatched if wait.rank is not None}
    ranks |= {int(match[1]) for notice in notices for match in _CALL.finditer(notice.message)}
    numbers, made = _pytorch_calls(notices)
    made = list(map(_call, mismatched)) if mismatched else made
    outliers, calls = _outlier(made), _by_call(made)
    if mismatched:
        calls = f"work {mismatched[0].seq} of process group {mismatched[0].group} is {calls}"
    elif calls and len(numbers) == 1 and None not in numbers:
        calls = f"call {numbers.pop()} is {calls}"
    one_of_each = {(wait.operation, wait.numel): wait.notice.evidence[0] for wait in reversed(mismatched)}
    is_certain = bool(stated or mismatched)
    yield Hit(
        named={
            "calls": calls,
            "stated": "" if calls else notices[0].message.partition(". If you believe")[0],
            "outliers": outliers,
        },
        known=() if is_certain else ("sizes",),
        ranks=outliers or ranks,
        hosts=hosts_in(notices),
        evidence=list(one_of_each.values()) or first_evidence(notices),
        explains=[],
        confidence="certain" if is_certain else "likely",
    )


def _find_mismatches(pending: list[Wait]) -> list[Wait]:
    """Return the waits of one group for one work number, but in different calls."""
    by_work: dict[tuple[str, int], list[Wait]] = {}
    for wait in pending:
        if wait.operation not in _PAIRWISE and wait.group is not None:
            by_work.setdefault((wait.group, wait.seq), []).append(wait)
    for same in by_work.values():
        calls = {(wait.operation, wait.numel if wait.operation in _SAME_SIZE else None) for wait in same}
        if len(calls) > 1 and len({wait.rank for wait in same}) > 1:
            return same
    return []


def _pytorch_calls(notices: list[Notice]) -> tuple[set[str | None], list[tuple[str, int | None]]]:
    """Return the numbers of the calls that differ according to PyTorch, and the call of each rank."""
    fingerprints = {match.groups() for notice in notices for match in _CALL.finditer(notice.message)}
    numbers = {number for _, number, _, _ in fingerprints}
    if len({operation for _, _, operation, _ in fingerprints}) > 1:
        return numbers, [(operation, int(rank)) for rank, _, operation, _ in fingerprints]
    if len({shape for *_, shape in fingerprints}) > 1:
        return numbers, [(f"{operation} of shape {shape}", int(rank)) for rank, _, operation, shape in fingerprints]
    return numbers, []


def _outlier(calls: Iterable[tuple[str, int | None]]) -> set[int]:
    """Return the only rank whose call differs from that of two or more others; of two ranks, either may be wrong."""
    by_call: dict[str, set[int]] = {}
    for call, rank in calls:
        if rank is None:
            return set()
        by_call.setdefault(call, set()).add(rank)
    few, *others = sorted(by_call.values(), key=len) or [set()]
    return few if len(others) == 1 and len(few) == 1 < len(others[0]) else set()


def _by_call(calls: Iterable[tuple[str, int | None]]) -> str:
    by_call: dict[str, set[int]] = {}
    for call, rank in calls:
        by_call.setdefault(call, set()).update(() if rank is None else (rank,))
    words = ((call, ranks_word(ranks) if ranks else "a rank that is not named") for call, ranks in by_call.items())
    return "; ".join(f"{call} on {who}" for call, who in sorted(words))


def _call(wait: Wait) -> tuple[str, int | None]:
    return wait.operation + (f" of {wait.numel} elements" if wait.numel is not None else ""), wait.rank
