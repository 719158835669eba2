"""Answers of NCCL's RAS, joined to the ranks of the log: shared by the rules about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING

from nccl_inspect.judging import watchdog
from nccl_inspect.judging.actors import actors_of
from nccl_inspect.judging.check import Hit
from nccl_inspect.judging.facts import Facts, cite_line
from nccl_inspect.judging.remedies import look_up
from nccl_inspect.judging.watchdog import waits
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import contents_of
from nccl_inspect.util.wording import list_words

if TYPE_CHECKING:
    from nccl_inspect.artifacts.ras import Answer, Lost, Member


def answers(facts: Facts) -> list[Answer]:
    """Return all answers, in the order of the files."""
    return contents_of(facts.job.artifacts, "ras")


def find_lost(facts: Facts) -> dict[int, tuple[str, Lost]]:
    """Return the processes that RAS lists as missing or dead, by pid, each with the newest answer that does.

    None are lost where all left in order.
    """
    lost = ((one.pid, (answer.name, one)) for answer in answers(facts) for one in answer.lost)
    return {} if facts.is_over() else {pid: found for pid, found in lost if pid}


def ranks_among(facts: Facts, members: Iterable[Member | Lost]) -> set[int]:
    """Return the ranks of the job that these are, as far as their processes show it."""
    ranks = actors_of(facts).ranks_by_pid
    return {ranks[member.pid] for member in members if member.pid in ranks}


def who(member: Member, ranks: Mapping[int, int]) -> str:
    """Return a rank of the job in words; its process where it is not known."""
    rank = ranks.get(member.pid or -1)
    if rank is not None:
        return f"rank {rank}"
    return f"pid {member.pid} on {member.host}" if member.pid else f"rank {member.rank} of the communicator"


def make_hit(facts: Facts, named: Mapping[str, object], ranks: Set[int], evidence: list[Evidence]) -> Hit:
    """Return a hit that is only a clue while the job is running: RAS may have been asked then, when counts differ."""
    running = not (facts.job.failed or waits(facts) or watchdog.all_standstills(facts))
    known = {**named, "running": running}
    return Hit([], known, ranks, evidence=evidence, confidence="possible" if running else "likely")


def same_counts(facts: Facts) -> tuple[str, str]:
    """Return where RAS counts the same collectives on all ranks, and how many; empty if it does not, or counts none."""
    for answer in reversed(answers(facts)):
        counts = Counter[str]()
        for launched in answer.launched.values():
            counts.update(launched)
        if counts and len(answer.launched) == len(answer.sizes) and not (answer.mismatches or answer.lost):
            words = list_words([f"{number} {operation}" for operation, number in counts.items()])
            return cite_line(Evidence(answer.name, 1, "")), words
    return "", ""


IN_STEP_FIX = (
    look_up("@STACKS"),
    "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1   # next time, the calls of all ranks show which "
    "send or receive has no partner",
)
"""Steps that identify the rank."""
