"""A process of the job does not answer NCCL's RAS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from nccl_inspect.judging.engine import Evidence, Facts
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.evidence.ras import answers, ranks_by_pid
from nccl_inspect.judging.facts import hosts_with
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.model.statements import ages
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import count, listed, ranks_word

if TYPE_CHECKING:
    from nccl_inspect.artifacts.ras import Lost


@frozen
class _Silent(Frozen):
    """A process from which RAS has no answer."""

    pid: int
    rank: int | None
    """None if neither the log nor the answer shows it."""
    answer: str
    """The file."""
    entry: Lost


def find(facts: Facts) -> Iterator[Hit]:
    """Find the processes that RAS lists as missing or dead in its newest answer, unless all left in order."""
    if facts.is_over() or not (silent := _silent(facts)):
        return
    ranks = {process.rank for process in silent if process.rank is not None}
    is_dead = any(process.entry.is_dead for process in silent)
    is_known = len(ranks) == len(silent)
    alive = list(_alive(facts, silent))
    yield Hit(
        named={
            "silent": ranks_word(ranks) if is_known else listed([f"pid {process.pid}" for process in silent]),
            "number": count(len(silent), "process", "es"),
            "pid": silent[0].pid,
            "dead": is_dead,
            "alive": "".join(words for words, _ in alive),
        },
        ranks=ranks if is_known else (),
        hosts=hosts_with(facts.job, ranks),
        evidence=[*(line for _, line in alive), *map(_line, silent, range(len(silent)))],
        confidence="possible" if alive else "certain" if is_dead else "likely",
    )


def _silent(facts: Facts) -> list[_Silent]:
    by_pid: dict[int, list[tuple[str, Lost]]] = {}
    for answer in answers(facts):
        for entry in answer.lost:
            if entry.pid:
                by_pid.setdefault(entry.pid, []).append((answer.name, entry))
    ranks = ranks_by_pid(facts)
    return [
        _Silent(pid, ranks.get(pid, _stated(facts, [entry for _, entry in entries])), *entries[-1])
        for pid, entries in by_pid.items()
    ]


def _stated(facts: Facts, entries: list[Lost]) -> int | None:
    """The rank that RAS states, if it is the same in all communicators; the log may count ranks in another one."""
    ranks = {entry.rank for entry in entries if entry.rank is not None}
    return ranks.pop() if len(ranks) == 1 and not facts.job.communicators else None


def _alive(facts: Facts, silent: Iterable[_Silent]) -> Iterator[tuple[str, Evidence]]:
    """Evidence against it: a rank that made a call after the answer was written was alive then."""
    dumps = {dump.rank: dump for dump in flight_recorder.dumps_of(facts)}
    for process in silent:
        dump = dumps.get(process.rank)
        written = ages.written(process.answer)
        if dump is None or dump.last is None or written is None:
            continue
        later = dump.active_ns / 1e9 - written
        if later > flight_recorder.CLOCKS:
            text = f"rank {dump.rank}: {flight_recorder.described(dump.last)}, {dump.last.state}"
            yield (
                f". But its dump contradicts that: rank {dump.rank} was active {later:.0f} s after this answer",
                Evidence(dump.name, dump.last.order, text),
            )


def _line(process: _Silent, place: int) -> Evidence:
    """The line of the answer; JSON has only one, whose processes stay in their order."""
    entry = process.entry
    where = f"rank {entry.rank} of communicator {entry.comm_id}: " if entry.rank is not None else ""
    state = "considered dead" if entry.is_dead else "no answer"
    text = f"{where}process {entry.pid} on {entry.host}: {state}"
    return Evidence(process.answer, entry.line, text, order=max(entry.line, place + 1))
