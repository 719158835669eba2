"""What NCCL's RAS answered, joined to the ranks of the log: what the rules about it share."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import TYPE_CHECKING

from nccl_inspect import artifacts
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.facts import Facts, hosts_with
from nccl_inspect.judging.hangs.watchdog import waits
from nccl_inspect.judging.line_order import short
from nccl_inspect.judging.remedies import STACKS
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding
from nccl_inspect.util.wording import listed

if TYPE_CHECKING:
    from nccl_inspect.artifacts.ras import Answer


def answers(facts: Facts) -> list[Answer]:
    """All answers, in the order of the files."""
    return artifacts.of(facts.job.artifacts, "ras")


def ranks_by_pid(facts: Facts) -> dict[int, int]:
    """The rank of each process that has one and shares its pid with no other: RAS names hosts by their addresses."""
    found: dict[int, set[int]] = {}
    for last in facts.job.last_lines:
        found.setdefault(last.process.pid, set()).update(last.ranks)
    return {pid: min(ranks) for pid, ranks in found.items() if len(ranks) == 1}


def stands_still(facts: Facts) -> bool:
    """Whether something else shows that the job stands still or has failed: counts of a running job differ, too."""
    return facts.job.failed or bool(waits(facts)) or bool(facts.once(flight_recorder.all_standstills))


def judged(
    facts: Facts,
    rule: Rule,
    summary: str,
    *,
    cause: str,
    fix: Iterable[str],
    confirm: str,
    ranks: Set[int],
    evidence: Iterable[Evidence],
) -> Finding:
    """A finding where the job stands still; else a clue, since RAS may have asked a job that runs.

    Args:
        facts: about the job.
        rule: whose finding it is.
        summary: what RAS answered, in one line.
        cause: why.
        fix: what to do.
        confirm: what would confirm or refute it, for a clue.
        ranks: those that are apart from the others.
        evidence: the lines of the answer.
    """
    hosts, impact = hosts_with(facts.job, ranks), flight_recorder.IMPACT
    if not stands_still(facts):
        return rule.clue(
            summary,
            cause=cause,
            impact=impact,
            fix=fix,
            confirm=confirm,
            severity="warning",
            confidence="possible",
            ranks=ranks,
            hosts=hosts,
            evidence=evidence,
        )
    return rule.finding(
        summary,
        cause=cause,
        impact=impact,
        fix=fix,
        confidence="likely",
        ranks=ranks,
        hosts=hosts,
        evidence=evidence,
        fatal=True,
    )


def in_step(facts: Facts) -> str:
    """That RAS counts the same collectives on all ranks, in words; empty where it does not, or counts none."""
    for answer in reversed(answers(facts)):
        counts: dict[str, int] = {}
        for launched in answer.launched.values():
            for operation, number in launched.items():
                counts[operation] = counts.get(operation, 0) + number
        if counts and len(answer.launched) == len(answer.sizes) and not (answer.mismatches or answer.lost):
            words = listed([f"{number} {operation}" for operation, number in counts.items()])
            return (
                f". RAS ({short(Evidence(answer.name, 1, ''))}) counts the same collectives on all ranks "
                f"({words}): no rank is behind in these. RAS does not count sends and receives: one without a partner, "
                "or a rank that is busy elsewhere, looks so"
            )
    return ""


IN_STEP_FIX = (
    STACKS,
    "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1   # next time the calls of every rank show which "
    "send or receive has no partner",
)
"""What tells which rank it is."""
