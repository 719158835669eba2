"""PyTorch gave up waiting for a collective."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nccl_inspect.event.types import Notice as NoticeEvent
from nccl_inspect.judging.engine import Account, Evidence, Facts, Finding, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.facts import global_ranks, hosts_with
from nccl_inspect.judging.hangs.origin import Origin, origin
from nccl_inspect.judging.hangs.progress import connecting, suspects
from nccl_inspect.judging.hangs.watchdog import (
    PAIRWISE,
    Wait,
    by_time,
    communicator_of,
    enqueued,
    in_calls,
    in_words,
    latecomers,
    pair_of,
    waits,
    without_output,
)
from nccl_inspect.judging.line_order import short
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.retelling import STACK, retell
from nccl_inspect.judging.statements import error_of, message_of, rank_prefix
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.util.wording import capital, does, listed, ranks_word

RULE = Rule(
    name="watchdog-timeout",
    category="failures",
    tells=("waited",),
    title="PyTorch gave up waiting for a collective",
    shows=("death",),
    supersedes=("ended-from-outside",),
)
_ORDER = "Ranks call the groups in different orders, skip a call, or another rank holds up both groups"
_FAILED = ("torch/cuda-error", "torch/cuda-out-of-memory", "torch/watchdog-terminated")
_RECORD = (
    "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1   # the flight recorder: the "
    "last calls of every rank",
    "TORCH_DISTRIBUTED_DEBUG=DETAIL   # compares the calls of all ranks",
)


class _Timeout(NamedTuple):
    """The process group that timed out first."""

    waits: list[Wait]
    """Those of its ranks, without latecomers."""
    late: list[Wait]
    """Those that arrived after the others had timed out."""
    comm: CommunicatorInfo | None
    elsewhere: list[Wait]
    """Those of other groups."""

    @property
    def group(self) -> str | None:
        """Its name; None if the lines do not show it."""
        return self.waits[0].group

    @property
    def waiting(self) -> set[int]:
        """The ranks that waited."""
        return {wait.rank for wait in self.waits if wait.rank is not None}

    @property
    def members(self) -> set[int]:
        """All ranks of the group, as far as its communicator is known."""
        return global_ranks(self.comm, range(self.comm.nranks)) if self.comm else set()

    @property
    def newest(self) -> int:
        """The highest number of a work that a rank waited for."""
        return max(wait.seq for wait in self.waits)

    @property
    def other_groups(self) -> list[str]:
        """The names of other groups that timed out."""
        return list(dict.fromkeys(wait.group for wait in self.elsewhere if wait.group is not None))


class _Suspicion(NamedTuple):
    """The ranks for which the others may have waited, why, and the lines that show it."""

    ranks: set[int]
    why: str
    lines: list[Evidence]
    origin: Origin | None = None
    """Where it began, if the waits of all process groups show it."""


def judge(facts: Facts) -> Results:
    """Judge the process group that timed out first; timeouts of others usually follow from it."""
    timeout = _timeout(facts)
    if timeout is None:
        yield from _reported_by_others(facts)
        return
    suspicion = _late(timeout.late) if timeout.late else _suspicion(facts, timeout)
    suspicion = _unless_connecting(facts, _unless_waiting(suspicion, timeout.elsewhere))
    is_settled = suspicion.ranks and not suspicion.ranks & without_output(facts)
    suspicion = _unless_recorded(facts, suspicion if is_settled else _of_all_groups(facts, suspicion))
    blamed = suspicion.ranks
    looked_at = blamed or set(suspicion.origin.among if suspicion.origin else ())
    where = ranks_word(looked_at)
    within = f" of process group {suspicion.origin.waits[0].group}" if suspicion.origin else ""
    yield RULE.finding(
        _summary(timeout) + _blame(suspicion),
        cause=_cause(facts, timeout, suspicion),
        impact="PyTorch ends the process, and with it the job",
        fix=[
            f"Look at the output of {where} first, and for a traceback."
            if looked_at
            else f"Find the rank{within} that did not arrive: look at the output of every rank.",
            f"py-spy dump --pid <pid>   # on {where if looked_at else 'every rank'}: where is it now?",
            *_RECORD,
            "A longer timeout (init_process_group(timeout=…)) helps only if a rank is slow, for example while "
            "writing a checkpoint; otherwise it hides the hang.",
        ],
        ranks=looked_at or timeout.waiting,
        hosts=hosts_with(facts.job, looked_at or timeout.waiting),
        evidence=[
            *first_evidence([wait.notice for wait in timeout.waits][: 2 if suspicion.origin else 3]),
            *suspicion.lines[:2],
        ],
        fatal=True,
    )


def tell(facts: Facts, account: Account) -> Finding:
    """Describe the ranks for which, by what all ranks say, the others waited."""
    return retell(
        RULE,
        account,
        "by what all ranks say, the others waited for it: it is busy or stuck elsewhere, or made another call",
        STACK,
        *_RECORD,
        impact="PyTorch ends the process, and with it the job",
    )


def _timeout(facts: Facts) -> _Timeout | None:
    everything = by_time(waits(facts))
    if not everything:
        return None
    first = everything[0]
    own = [wait for wait in everything if wait.group == first.group]
    late = latecomers(own)
    own = [wait for wait in own if wait not in late]
    timeout = _Timeout(own, late, None, [wait for wait in everything if wait.group != first.group])
    is_pairwise = first.operation in PAIRWISE
    comm = pair_of(facts, timeout.waiting) if is_pairwise else communicator_of(facts, first.group, own)
    return timeout._replace(comm=comm)


def _summary(timeout: _Timeout) -> str:
    of_group = f" of process group {timeout.group}" if timeout.group is not None else ""
    in_comm = f", communicator {timeout.comm.id} with {timeout.comm.nranks} ranks" if timeout.comm else ""
    return f"{in_words(timeout.waits, of_group + in_comm)} and timed out"


def _cause(facts: Facts, timeout: _Timeout, suspicion: _Suspicion) -> str:
    began = {wait.group for wait in suspicion.origin.waits} if suspicion.origin else set()
    others = [group for group in timeout.other_groups if group not in began]
    groups = f"Process group{'s' if len(others) > 1 else ''} {listed(others)}"
    also = f". {groups} also timed out: usually a consequence" if others else ""
    return f"the lines show who waited, not why. {suspicion.why}{suspects(facts)}{_of_threads(facts)}{also}"


def _blame(suspicion: _Suspicion) -> str:
    """The suspects, or where it began, as the end of a summary."""
    if suspicion.ranks:
        return f"; suspect: {ranks_word(suspicion.ranks)}"
    return f"; {suspicion.origin.blame}" if suspicion.origin else ""


def _unless_recorded(facts: Facts, suspicion: _Suspicion) -> _Suspicion:
    """The ranks that the flight recorder's dumps prove take precedence over those that the log suggests."""
    proved = flight_recorder.proved(facts)
    if not proved or suspicion.ranks == proved:
        return suspicion
    why = suspicion.why
    if suspicion.ranks:
        why = f"The log alone points to {ranks_word(suspicion.ranks)}, but the dumps contradict it: {why}"
    shown = f"The flight recorder's dumps show that the others wait for {ranks_word(proved)}. {why}"
    return suspicion._replace(ranks=proved, why=shown)


def _reported_by_others(facts: Facts) -> Iterator[Finding]:
    """A timeout that only the dump signals on other ranks report."""
    signals = [notice for notice in facts.with_role("watchdog-dump") if "timeout" in notice.message]
    if not signals:
        return
    reporters = {rank for signal in signals for rank in _rank_of(signal)}
    origins = {rank for signal in signals for rank in _origin(signal)}
    who = ranks_word(origins) if origins else "a rank"
    by = ranks_word(reporters) if reporters else "others"
    yield RULE.finding(
        f"{who} waited for a collective and timed out, according to {by}",
        cause="the lines show who timed out first, not why: the output of that rank names the collective, and the "
        "output of the rank that did not arrive has the reason. Neither is in the log",
        impact="PyTorch ends the process, and with it the job",
        fix=[
            "Add the output of all ranks, with the line 'Watchdog caught collective operation timeout'.",
            *_RECORD,
        ],
        confidence="likely",
        ranks=origins,
        evidence=first_evidence(signals),
        fatal=True,
    )


def _origin(signal: Notice) -> list[int]:
    """The rank whose timeout caused a dump signal, if the line names it."""
    if value(signal, "__self") is not None:
        return _rank_of(signal)
    rank = value(signal, "origin_rank")
    return [] if rank is None else [rank]


def _of_threads(facts: Facts) -> str:
    """The exception that ended a thread of the program, after which its rank may have got stuck."""
    ended = exceptions.exceptions_of(facts).of_threads
    if not ended:
        return ""
    return f". A thread of the program had ended with {ended[0].text} ({short(ended[0].line)})"


def _late(late: list[Wait]) -> _Suspicion:
    """Ranks that arrived at a collective after the others had timed out."""
    ranks = {wait.rank for wait in late if wait.rank is not None}
    who = ranks_word(ranks) if ranks else "the rank that timed out last"
    why = f"Suspect: {who} arrived late, and began to wait only after the others had timed out"
    return _Suspicion(ranks, why, first_evidence(wait.notice for wait in late))


def _suspicion(facts: Facts, timeout: _Timeout) -> _Suspicion:
    """The ranks for which the others may have waited, by the best evidence available."""
    return (
        _ended_alone(facts, timeout)
        or _failed(facts)
        or _lagging(facts)
        or _not_enqueued(facts, timeout)
        or _other_call(timeout)
        or _absent(facts, timeout)
    )


def _ended_alone(facts: Facts, timeout: _Timeout) -> _Suspicion | None:
    """Ranks with a traceback that did not wait."""
    traces = [trace for trace in exceptions.exceptions_of(facts).traces if trace.rank not in timeout.waiting]
    if not traces:
        return None
    reasons = "; ".join(f"rank {t.rank}: {t.last.text if t.last else 'an exception'}" for t in traces[:2])
    return _Suspicion(
        {trace.rank for trace in traces},
        f"Suspect, because it ended on its own: {reasons}",
        first_evidence(trace.begin for trace in traces),
    )


def _failed(facts: Facts) -> _Suspicion | None:
    """Ranks that report a failure of their own."""
    failed = {rank: notice for notice in facts.notices(*_FAILED) if _is_cuda(notice) for rank in _rank_of(notice)}
    reasons = "; ".join(f"rank {rank}: {message_of(notice)}" for rank, notice in sorted(failed.items())[:2])
    why = f"Suspect, because it reports its own failure: {reasons}"
    return _Suspicion(set(failed), why, first_evidence(failed.values())) if failed else None


def _lagging(facts: Facts) -> _Suspicion | None:
    """Ranks that PyTorch's desync report names."""
    reports = facts.notices("torch/desync-lagging", "torch/desync-not-joined")
    named = {rank for notice in reports for rank in _members(notice)}
    why = f"PyTorch's desync report names {ranks_word(named)} as lagging"
    return _Suspicion(named, why, first_evidence(reports)) if reports else None


def _not_enqueued(facts: Facts, timeout: _Timeout) -> _Suspicion | None:
    """Ranks that never called the work that the others waited for."""
    newest, reached = timeout.newest, enqueued(facts, timeout.group)
    waiting = timeout.waiting | in_calls(facts)
    behind = {rank: notice for rank, (last, notice) in reached.items() if last < newest and rank not in waiting}
    counts = ", ".join(f"{reached[rank][0]} by rank {rank}" for rank in sorted(behind)[:4])
    if not behind:
        return None
    who = f"{ranks_word(behind)} never called work {newest} (last enqueued: work {counts})"
    if unseen := timeout.members & without_output(facts):
        why = f"{capital(who)}, and the log has no output of {ranks_word(unseen)}, for which it may wait"
        return _Suspicion(set(), why, first_evidence(behind.values()))
    return _Suspicion(set(behind), f"Suspect: {who}", first_evidence(behind.values()))


def _other_call(timeout: _Timeout) -> _Suspicion | None:
    """Ranks that wait for a lower number than others of their group: the calls under that number differ."""
    newest = timeout.newest
    lowest = {wait.rank: wait.notice for wait in timeout.waits if wait.seq < newest and wait.rank is not None}
    if not lowest or timeout.group is None:
        return None
    lower = min(wait.seq for wait in timeout.waits)
    why = f"Others finished work {lower} and wait in work {newest}: {ranks_word(lowest)} made a different call "
    why += "under that number, with another size or type, or its part is stuck. The log does not show which"
    return _Suspicion(set(), why, first_evidence(lowest.values()))


def _absent(facts: Facts, timeout: _Timeout) -> _Suspicion:
    """Ranks of the group that did not time out."""
    members, waiting = timeout.members, timeout.waiting
    absent = members - waiting - enqueued(facts, timeout.group).keys() - in_calls(facts) if waiting else set()
    if not absent and members:
        rest = members - waiting
        elsewhere = f"{ranks_word(rest)} called it as well, or {does(len(rest), 'wait')} in another call"
        all_waited = "All ranks of the group waited in it"
        return _Suspicion(set(), capital(elsewhere) if rest else all_waited, [])
    if not absent:
        return _Suspicion(set(), _unlisted(timeout.waits) or _UNKNOWN, [])
    if len(absent) > len(waiting):
        return _Suspicion(set(), f"{_UNKNOWN}: {ranks_word(absent)} did not time out in it", [])
    seen = absent & set(facts.job.ranks_seen)
    here = f" (this log has other lines of {ranks_word(seen)})" if seen else ""
    why = f"Suspect: {ranks_word(absent)} did not time out{here}. It did not arrive, died, or its output is missing"
    return _Suspicion(absent, why, [])


def _unless_waiting(suspicion: _Suspicion, elsewhere: list[Wait]) -> _Suspicion:
    """The suspects, without ranks that wait for others themselves in another process group."""
    held = {wait.rank: wait for wait in elsewhere if wait.rank in suspicion.ranks}
    if not held:
        return suspicion
    calls = [f"rank {rank} waits in {wait.operation} (work {wait.seq} of {wait.group})" for rank, wait in held.items()]
    left = suspicion.ranks - held.keys()
    themselves = "it waits for others itself" if len(held) == 1 else "they wait for others themselves"
    cause = f"{listed(calls, limit=3)}: {themselves}, in another process group"
    return suspicion._replace(
        ranks=left, why=f"{suspicion.why}; but {cause}" if left else f"{capital(cause)}. {_ORDER}"
    )


def _unless_connecting(facts: Facts, suspicion: _Suspicion) -> _Suspicion:
    """The suspects, without ranks that wait for others to make a communicator or a connection."""
    blamed, making = suspicion.ranks, flight_recorder.being_made(facts)
    words = {rank: "began a communicator that others did not" for rank in blamed if rank in making}
    if len(blamed) > 1:
        peers = {rank: peer for rank, peer in connecting(facts).items() if rank in blamed}
        words |= {rank: f"waits to connect to rank {peer}" for rank, peer in peers.items()}
    if not words or words.keys() == blamed:
        return suspicion
    held = listed([f"rank {rank} {what}" for rank, what in sorted(words.items())], limit=3)
    return suspicion._replace(ranks=blamed - words.keys(), why=f"{suspicion.why}; but {held}")


def _of_all_groups(facts: Facts, suspicion: _Suspicion) -> _Suspicion:
    """What the waits of all process groups together show, if anything."""
    began = origin(facts, waits(facts), flight_recorder.being_made(facts))
    if began is None:
        return suspicion
    shown = first_evidence(wait.notice for wait in began.waits if wait.group != waits(facts)[0].group)
    return suspicion._replace(ranks=began.suspects, why=began.words, lines=[*shown, *suspicion.lines], origin=began)


def _unlisted(waits: list[Wait]) -> str:
    """The few ranks below the highest of the process group that did not wait, in words."""
    waiting = {wait.member for wait in waits if wait.member is not None}
    absent = set(range(max(waiting, default=0))) - waiting
    if not absent or len(absent) >= len(waiting):
        return ""
    who = ranks_word(absent)
    return f"{capital(who)} of the group did not time out: late or dead, or the output is missing"


_UNKNOWN = "The log does not show which rank did not arrive"


def _is_cuda(notice: Notice) -> bool:
    return notice.production != "torch/watchdog-terminated" or "CUDA error" in error_of(notice)


def _rank_of(notice: Notice) -> list[int]:
    """The rank that a line of PyTorch names, if any."""
    values = dict(notice.event.values) if isinstance(notice.event, NoticeEvent) else {}
    rank = values.get("global_rank", rank_prefix(notice))
    return [rank] if isinstance(rank, int) else []


def _members(notice: Notice) -> list[int]:
    text = str(dict(notice.event.values).get("members", "")) if isinstance(notice.event, NoticeEvent) else ""
    return [int(part) for part in text.split(",") if part.strip().isdigit()]
