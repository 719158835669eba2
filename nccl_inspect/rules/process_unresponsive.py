"""A process of the job does not answer NCCL's RAS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from nccl_inspect.judging.check import Evidence, Facts, Hit
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.evidence.ras import answers, ranks_by_pid
from nccl_inspect.judging.facts import hosts_with
from nccl_inspect.model.statements import ages
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.wording import count, list_words, ranks_word

if TYPE_CHECKING:
    from nccl_inspect.artifacts.ras import Lost


def find(facts: Facts) -> Iterator[Hit]:
    """Find the processes that RAS lists as missing or dead in its newest answer, unless all left in order."""
    lost = group_values((one.pid, (answer.name, one)) for answer in answers(facts) for one in answer.lost if one.pid)
    if facts.is_over() or not lost:
        return
    known = ranks_by_pid(facts)
    for pid, entries in lost.items():  # what RAS states where the log, which may count ranks in another one, has none
        stated = {entry.rank for _, entry in entries if entry.rank is not None}
        if pid and pid not in known and len(stated) == 1 and not facts.job.communicators:
            known[pid] = stated.pop()
    newest = {pid: entries[-1] for pid, entries in lost.items() if pid}
    ranks = {known[pid] for pid in newest if pid in known}
    is_known, is_dead = len(ranks) == len(newest), any(entry.is_dead for _, entry in newest.values())
    alive = list(_alive(facts, {known[pid]: name for pid, (name, _) in newest.items() if pid in known}))
    yield Hit(
        named={
            "silent": ranks_word(ranks) if is_known else list_words([f"pid {pid}" for pid in newest]),
            "number": count(len(newest), "process"),
            "pid": next(iter(newest)),
            "dead": is_dead,
            "alive": "".join(words for words, _ in alive),
        },
        ranks=ranks if is_known else (),
        hosts=hosts_with(facts.job, ranks),
        evidence=[*(line for _, line in alive), *map(_line, newest.values(), range(len(newest)))],
        confidence="possible" if alive else "certain" if is_dead else "likely",
    )


def _alive(facts: Facts, answer_of: Mapping[int, str]) -> Iterator[tuple[str, Evidence]]:
    """Yield evidence against it: a rank that made a call after the answer was written was alive then."""
    dumps = {dump.rank: dump for dump in flight_recorder.dumps_of(facts)}
    for rank, name in answer_of.items():
        dump, written = dumps.get(rank), ages.write_time(name)
        if dump is None or dump.last is None or written is None:
            continue
        later = dump.active_ns / 1e9 - written
        if later > flight_recorder.CLOCKS:
            words = f". But its dump contradicts that: rank {rank} was active {later:.0f} s after this answer"
            text = f"rank {rank}: {flight_recorder.describe_call(dump.last)}, {dump.last.state}"
            yield words, Evidence(dump.name, dump.last.order, text)


def _line(found: tuple[str, Lost], place: int) -> Evidence:
    """Return the line of the answer; JSON has only one, whose processes stay in their order."""
    name, entry = found
    where = f"rank {entry.rank} of communicator {entry.comm_id}: " if entry.rank is not None else ""
    text = f"{where}process {entry.pid} on {entry.host}: {'considered dead' if entry.is_dead else 'no answer'}"
    return Evidence(name, entry.line, text, order=max(entry.line, place + 1))
