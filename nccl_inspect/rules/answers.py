"""What NCCL's RAS answered, joined to the ranks of the log: what the rules about it share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nccl_inspect import artifacts
from nccl_inspect.rules import recorder
from nccl_inspect.rules.facts import Facts
from nccl_inspect.rules.waits import waits

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
    return facts.job.failed or bool(waits(facts)) or bool(facts.once(recorder.all_standstills))
