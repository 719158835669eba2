"""NCCL's RAS counts different numbers of operations on the ranks of a communicator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nccl_inspect.judging.check import Evidence, Facts, Hit
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.evidence.ras import answers, make_hit, ranks_by_pid, who
from nccl_inspect.judging.watchdog import waiting_ranks
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.wording import list_words, ranks_word

if TYPE_CHECKING:
    from nccl_inspect.artifacts.ras import Answer, Member, Mismatch

_FEW = 3
"""Ranks that somebody looks at one after the other."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find the mismatches of one communicator in the newest answer that has any, and who waits for nobody by them."""
    differing = [answer for answer in answers(facts) if answer.mismatches]
    if not differing:
        return
    whole = ([answer for answer in differing if answer.sizes] or differing)[-1]
    ranks, held, proved = ranks_by_pid(facts), flight_recorder.waiting(facts), flight_recorder.blocking_ranks(facts)
    # All that are behind where each of them is ahead elsewhere.
    late = whole.last_to_come() or [member for mismatch in whole.mismatches for member in mismatch.behind]
    late = [member for member in late if ranks.get(member.pid or -1) not in held]
    late = [member for member in late if not proved or ranks.get(member.pid or -1) in {*proved, None}]
    behind = {rank for member in late if (rank := ranks.get(member.pid or -1)) is not None}
    lagging = _select_mismatches(differing[-1], late)
    if not lagging:
        return  # the dumps show that these wait for others
    # They may wait for ranks in communicators in which all counts are equal: then one of these is at fault.
    pids = [member.pid for member in late if member.pid and not proved]
    beside = [other for pid in pids for other in whole.ranks_in_step(pid)]
    in_step = {rank for member in beside if (rank := ranks.get(member.pid or -1)) is not None} - behind - held
    is_waiting = bool(behind) and not proved and behind <= waiting_ranks(facts)
    is_either = bool(in_step) and len(behind | in_step) <= _FEW
    named = {
        "counts": "; ".join(_counts(mismatch, ranks) for mismatch in lagging[:3]),
        "comm": lagging[0].comm_id,
        "behind": list_words(dict.fromkeys(who(member, ranks) for member in late), limit=4),
        "mixed": len(lagging) > 1 and all(mismatch.behind != lagging[0].behind for mismatch in lagging[1:]),
        "step": in_step if is_either else "",
        "waits": is_waiting,
    }
    lines = [_line(differing[-1], mismatch, ranks) for mismatch in lagging]
    hit = make_hit(facts, named, behind | in_step if is_either else behind, lines)
    yield hit.with_fields(confidence="possible") if is_either or is_waiting else hit


def _select_mismatches(answer: Answer, late: list[Member]) -> list[Mismatch]:
    """Return the mismatches of the communicator in which most of these are behind, the largest first."""
    pids = {member.pid for member in late}
    late_ones = (one for one in answer.mismatches if any(member in late or member.pid in pids for member in one.behind))
    by_comm = group_values((mismatch.comm_id, mismatch) for mismatch in late_ones)
    most = max(reversed(by_comm), key=lambda comm_id: len(by_comm[comm_id][0].behind), default="")
    return by_comm.get(most, [])


def _counts(mismatch: Mismatch, ranks: dict[int, int]) -> str:
    by_count = group_values((member.launched, member) for member in mismatch.members)
    counts = []
    for number, members in sorted(by_count.items()):
        known = {ranks[member.pid] for member in members if member.pid in ranks}
        unknown = [who(member, ranks) for member in members if member.pid not in ranks]
        counts.append(f"{number} on {list_words([*([ranks_word(known)] if known else []), *unknown], limit=3)}")
    if mismatch.usual is not None and mismatch.usual not in by_count:
        counts.append(f"{mismatch.usual} on the others")
    return f"{mismatch.operation} {list_words(counts, limit=3)}"


def _line(answer: Answer, mismatch: Mismatch, ranks: dict[int, int]) -> Evidence:
    text = f"communicator {mismatch.comm_id}: launched {_counts(mismatch, ranks)}"
    return Evidence(answer.name, answer.lines.get(mismatch.comm_id, 1), text)
