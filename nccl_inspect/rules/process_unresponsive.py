"""A process of the job does not answer NCCL's RAS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.evidence.ras import answers, ranks_by_pid
from nccl_inspect.judging.facts import Facts, hosts_with
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.statements import ages
from nccl_inspect.util.wording import count, listed, ranks_word

if TYPE_CHECKING:
    from nccl_inspect.artifacts.ras import Lost

RULE = Rule(
    name="process-unresponsive",
    category="failures",
    severity="error",
    title="A process of the job does not answer NCCL's RAS",
    echoes=("collective-not-called", "p2p-without-partner", "ranks-in-error", "ranks-out-of-step", "watchdog-*"),
    local=True,
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge the processes that RAS lists as missing or dead in its newest answer."""
    ranks = ranks_by_pid(facts)
    lost = {entry.pid: (answer.name, entry) for answer in answers(facts) for entry in answer.lost if entry.pid}
    if not lost:
        return
    named = {ranks[pid] for pid in lost if pid in ranks}
    dead = any(entry.is_dead for _, entry in lost.values())
    who = ranks_word(named) if len(named) == len(lost) else listed([f"pid {pid}" for pid in lost])
    alive = list(_alive(facts, ranks, lost.values()))
    yield RULE.finding(
        f"RAS has no answer from {who}" + (" and considers it dead" if dead else ""),
        cause=f"{count(len(lost), 'process', 'es')} did not answer over RAS's own connections, which depend on neither "
        "the GPU nor the program: it died, is stopped (SIGSTOP, a debugger, a frozen container), or its host is "
        "unreachable" + "".join(words for words, _ in alive),
        impact=flight_recorder.IMPACT,
        fix=[
            f"ps -o pid,stat,etime,cmd -p {next(iter(lost))}   # T: stopped; Z or nothing: dead; on the host of {who}",
            "kubectl get pod -o wide; scontrol show node <node>; ping <host>   # is the host up?",
        ],
        confidence="possible" if alive else "certain" if dead else "likely",
        ranks=named,
        hosts=hosts_with(facts.job, named),
        evidence=[
            *(line for _, line in alive),
            *(_line(name, entry, number) for number, (name, entry) in enumerate(lost.values(), 1)),
        ],
        fatal=True,
    )


def _alive(facts: Facts, ranks: Mapping[int, int], lost: Iterable[tuple[str, Lost]]) -> Iterator[tuple[str, Evidence]]:
    """Evidence against it: a rank that made a call after the answer was written was alive then."""
    dumps = {dump.rank: dump for dump in flight_recorder.dumps_of(facts)}
    for name, entry in lost:
        dump = dumps.get(ranks.get(entry.pid or -1))
        written = ages.written(name)
        if dump is None or dump.last is None or written is None:
            continue
        later = dump.active_ns / 1e9 - written
        if later > flight_recorder.CLOCKS:
            text = f"rank {dump.rank}: {flight_recorder.described(dump.last)}, {dump.last.state}"
            yield (
                f". But its dump contradicts that: rank {dump.rank} was active {later:.0f} s after this answer",
                Evidence(dump.name, dump.last.order, text),
            )


def _line(name: str, entry: Lost, number: int) -> Evidence:
    where = f"rank {entry.rank} of communicator {entry.comm_id}: " if entry.rank is not None else ""
    state = "considered dead" if entry.is_dead else "no answer"
    return Evidence(name, number, f"{where}process {entry.pid} on {entry.host}: {state}")
