"""NCCL's RAS counts different numbers of operations on the ranks of a communicator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nccl_inspect.judging.engine import Evidence, Facts
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.evidence.ras import answers, make_hit, ranks_by_pid, who
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.grouping import grouped_sets
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import listed, ranks_word

if TYPE_CHECKING:
    from nccl_inspect.artifacts.ras import Answer, Member, Mismatch

_FEW = 3
"""Ranks that somebody looks at one after the other."""


@frozen
class _Lag(Frozen):
    """The ranks that launched fewer operations than others."""

    members: list[Member]
    ranks: set[int]
    """Those of them that are known."""
    in_step: set[int]
    """Ranks for which they may wait: in these communicators all counts are equal."""

    @property
    def looked_at(self) -> set[int]:
        """The ranks of which one is likely at fault."""
        either = self.ranks | self.in_step
        return either if len(either) <= _FEW else self.ranks


def find(facts: Facts) -> Iterator[Hit]:
    """Find the mismatches of one communicator in the newest answer that has any."""
    differing = [answer for answer in answers(facts) if answer.mismatches]
    if not differing:
        return
    answer = differing[-1]
    ranks = ranks_by_pid(facts)
    lag = _lag(facts, ([answer for answer in differing if answer.sizes] or differing)[-1], ranks)
    lagging = _about(answer, lag.members)
    if not lagging:
        return  # the dumps show that these wait for others
    named = {
        "counts": "; ".join(_counts(mismatch, ranks) for mismatch in lagging[:3]),
        "comm": lagging[0].comm_id,
        "behind": listed(dict.fromkeys(who(member, ranks) for member in lag.members), limit=4),
        "mixed": len(lagging) > 1 and all(mismatch.behind != lagging[0].behind for mismatch in lagging[1:]),
        "step": lag.in_step if lag.looked_at > lag.ranks else "",
    }
    hit = make_hit(facts, named, lag.looked_at, [_line(answer, mismatch, ranks) for mismatch in lagging])
    yield hit.with_fields(confidence="possible") if lag.looked_at > lag.ranks else hit


def _lag(facts: Facts, answer: Answer, ranks: dict[int, int]) -> _Lag:
    """The ranks that wait for nobody by the counts; all that are behind where each of them is ahead elsewhere."""
    held, proved = flight_recorder.waiting(facts), flight_recorder.proved(facts)
    from nccl_inspect.artifacts import ras_counts  # few jobs have an answer beside their log

    late = ras_counts.last_to_come(answer) or [member for mismatch in answer.mismatches for member in mismatch.behind]
    late = [member for member in late if (rank := ranks.get(member.pid or -1)) not in held]
    late = [member for member in late if not proved or ranks.get(member.pid or -1) in {*proved, None}]
    behind = {rank for member in late if (rank := ranks.get(member.pid or -1)) is not None}
    if proved:
        return _Lag(late, behind, set())
    beside = [other for member in late if member.pid for other in ras_counts.in_step_with(answer, member.pid)]
    in_step = {rank for member in beside if (rank := ranks.get(member.pid or -1)) is not None} - behind - held
    return _Lag(late, behind, in_step)


def _about(answer: Answer, late: list[Member]) -> list[Mismatch]:
    """The mismatches of the communicator in which most of these are behind, the largest first."""
    pids = {member.pid for member in late}
    by_comm: dict[str, list[Mismatch]] = {}
    for mismatch in answer.mismatches:
        if any(member in late or member.pid in pids for member in mismatch.behind):
            by_comm.setdefault(mismatch.comm_id, []).append(mismatch)
    most = max(reversed(by_comm), key=lambda comm_id: len(by_comm[comm_id][0].behind), default="")
    return by_comm.get(most, [])


def _counts(mismatch: Mismatch, ranks: dict[int, int]) -> str:
    by_count = grouped_sets((member.launched, ranks.get(member.pid or -1)) for member in mismatch.members)
    unknown = [member for member in mismatch.members if member.pid not in ranks]
    counts = [
        f"{number} on "
        + listed(
            [
                *([ranks_word(known)] if (known := {rank for rank in members if rank is not None}) else []),
                *(who(member, ranks) for member in unknown if member.launched == number),
            ],
            limit=3,
        )
        for number, members in sorted(by_count.items())
    ]
    if mismatch.usual is not None and mismatch.usual not in by_count:
        counts.append(f"{mismatch.usual} on the others")
    return f"{mismatch.operation} {listed(counts, limit=3)}"


def _line(answer: Answer, mismatch: Mismatch, ranks: dict[int, int]) -> Evidence:
    text = f"communicator {mismatch.comm_id}: launched {_counts(mismatch, ranks)}"
    return Evidence(answer.name, answer.lines.get(mismatch.comm_id, 1), text)
