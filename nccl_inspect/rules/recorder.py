"""What PyTorch's flight recorder says of a standstill, in words and lines: what the rules about it share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_inspect import artifacts
from nccl_inspect.artifacts import causes
from nccl_inspect.model import ages
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.rules.facts import Facts, listed, ranks_word
from nccl_inspect.rules.waits import waits

if TYPE_CHECKING:
    from nccl_inspect.artifacts.flight_recorder import Call, Dump, Group
    from nccl_inspect.artifacts.standstill import Part, Standstill

IMPACT = "ranks wait for each other; PyTorch's watchdog ends the job when the time limit of the call is over"
_SHORT = {"_all_gather_base": "all_gather_into_tensor", "_reduce_scatter_base": "reduce_scatter_tensor"}
"""What programs call these operations."""


def standstills(facts: Facts, *kinds: str) -> list[Standstill]:
    """What holds the job up by the dumps of its ranks, of these kinds."""
    return [still for still in facts.once(all_standstills) if still.kind in kinds]


def all_standstills(facts: Facts) -> list[Standstill]:
    """What holds the job up by the dumps of its ranks.

    Dumps of a job that runs show ranks in calls that others have still to make: then only calls that differ are wrong.
    """
    dumps = _dumps(facts)
    if not dumps:
        return []
    from nccl_inspect.artifacts import standstill  # most logs come alone

    found = standstill.of(dumps)
    return [still for still in found if still.kind == causes.DIFFERENT] if is_running(facts) else found


def is_running(facts: Facts) -> bool:
    """Whether all dumps were written while their ranks made calls: who dumps at a time-out has waited for long.

    Copies are younger than that, and stand for dumps of a job that stands still.
    """
    return facts.once(_is_running)


def _is_running(facts: Facts) -> bool:
    job = facts.job
    if job.failed or job.ended_by or job.quiet is not None or facts.failures() or waits(facts):
        return False
    since = [(ages.written(dump.name), dump.active_ns / 1e9) for dump in _dumps(facts)]
    return bool(since) and all(when and 0 <= when - active < _FRESH for when, active in since)


_FRESH = 5.0
"""Seconds after a call: nobody sets a time limit so short."""


def confidence(still: Standstill) -> str:
    """How sure it is who does not come: a rank may lack a dump as nobody passed it, a group its ranks (until 2.2)."""
    if still.culprits:
        return "certain" if still.group.ranks or still.group.name == _WORLD else "possible"
    return "likely" if len(still.silent) <= len(still.waiting) else "possible"


_WORLD = "0"
"""The name of the group of all ranks."""


def _dumps(facts: Facts) -> list[Dump]:
    return artifacts.of(facts.job.artifacts, "flight_recorder")


def ranks_of(parts: Iterable[Part]) -> set[int]:
    """The ranks of the job that take part."""
    return {part.rank for part in parts}


def work(call: Call | None, group: Group, seq: int) -> str:
    """A call of a group in words: ``all_reduce (work 6 of group TP)``."""
    number = f"work {seq} of group {group.label}"
    return f"{operation(call.operation)} ({number})" if call else number


def operation(name: str) -> str:
    """An operation as programs call it."""
    return _SHORT.get(name, name)


def described(call: Call) -> str:
    """A call with its size and type: ``all_reduce of 1048576 elements of Float``."""
    size = f" of {sum(call.inputs)} elements" if call.inputs else ""
    return f"{operation(call.operation)}{size}" + (f" of {'/'.join(call.dtypes)}" if call.dtypes else "")


def by_call(parts: Sequence[Part]) -> str:
    """Each call with the ranks that made it."""
    made: dict[str, set[int]] = {}
    for part in parts:
        if part.call:
            made.setdefault(described(part.call), set()).add(part.rank)
    return "; ".join(f"{call} on {ranks_word(ranks)}" for call, ranks in made.items())


def places(parts: Sequence[Part]) -> str:
    """Where the program made these calls, with the ranks; empty where the dumps have no stacks."""
    made: dict[str, set[int]] = {}
    for part in parts:
        if part.call and part.call.frame:
            made.setdefault(part.call.frame, set()).add(part.rank)
    return listed([f"{frame} ({ranks_word(ranks)})" for frame, ranks in made.items()], limit=3)


def label(facts: Facts, part: Part) -> str:
    """The group of a call as the program calls it."""
    return facts.once(_groups)[part.dump][part.call.group].label if part.call else ""


def _groups(facts: Facts) -> dict[str, dict[str, Group]]:
    """The groups of each dump."""
    return {dump.name: dump.groups for dump in _dumps(facts)}


def lines(facts: Facts, parts: Sequence[Part], limit: int = 2) -> Iterator[Evidence]:
    """The calls as lines of evidence; the number is that of the call on its rank."""
    for part in parts[:limit]:
        if part.call is None:
            continue
        place = f", {part.call.frame}" if part.call.frame else ""
        text = f"rank {part.rank}: work {part.call.seq} of group {label(facts, part)}: {described(part.call)}"
        yield Evidence(part.dump, part.call.order, f"{text}, {part.call.state}{place}")
