"""NCCL's RAS counts different numbers of operations on the ranks of a communicator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.evidence.ras import answers, finding_or_clue, ranks_by_pid
from nccl_inspect.util.grouping import grouped_sets
from nccl_inspect.util.wording import listed, ranks_word

if TYPE_CHECKING:
    from nccl_inspect.artifacts.ras import Answer, Member, Mismatch
from nccl_inspect.judging.engine import Evidence, Facts, Results, Rule

RULE = Rule(
    name="ranks-out-of-step",
    category="failures",
    title="RAS counts different numbers of operations on the ranks of a communicator",
    echoes=("watchdog-*",),
    local=True,
)


def judge(facts: Facts) -> Results:
    """Judge the mismatches of one communicator in the newest answer that has any."""
    mismatches = [(answer, mismatch) for answer in answers(facts) for mismatch in answer.mismatches]
    if not mismatches:
        return
    answer, first = mismatches[-1]
    mine = [mismatch for other, mismatch in mismatches if other is answer and mismatch.comm_id == first.comm_id]
    ranks = ranks_by_pid(facts)
    behind = {_rank(member, ranks) for mismatch in mine for member in mismatch.behind}
    behind -= flight_recorder.waiting(facts)
    if not behind:
        return  # the dumps show that these wait for others
    both = len(mine) > 1 and all(mismatch.behind != mine[0].behind for mismatch in mine[1:])
    summary = f"RAS: {'; '.join(_counts(mismatch, ranks) for mismatch in mine[:3])} in communicator {first.comm_id}"
    cause = (
        "the ranks call different operations: none is ahead in all of them"
        if both
        else f"{ranks_word(behind)} launched fewer operations than the others: late, busy, or waiting elsewhere"
    )
    fix = ["py-spy dump --pid <pid>   # where is this rank now?", _RECORD]
    evidence = [_line(answer, mismatch, ranks) for mismatch in mine]
    yield finding_or_clue(
        facts,
        RULE,
        summary,
        cause=cause,
        fix=fix,
        confirm="Ask RAS again after 10 s: if the counts are the same, the job hangs; if they changed, it runs.",
        ranks=behind,
        evidence=evidence,
    )


_RECORD = "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1   # records the calls of every rank next time"


def _rank(member: Member, ranks: dict[int, int]) -> int:
    """The rank of the job; that of the communicator if the process is not in the log."""
    return ranks.get(member.pid or -1, member.rank)


def _counts(mismatch: Mismatch, ranks: dict[int, int]) -> str:
    by_count = grouped_sets((member.launched, _rank(member, ranks)) for member in mismatch.members)
    counts = [f"{number} on {ranks_word(members)}" for number, members in sorted(by_count.items())]
    if mismatch.usual is not None and mismatch.usual not in by_count:
        counts.append(f"{mismatch.usual} on the others")
    return f"{mismatch.operation} {listed(counts, limit=3)}"


def _line(answer: Answer, mismatch: Mismatch, ranks: dict[int, int]) -> Evidence:
    text = f"communicator {mismatch.comm_id}: launched {_counts(mismatch, ranks)}"
    return Evidence(answer.name, answer.lines.get(mismatch.comm_id, 1), text)
