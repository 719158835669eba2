"""PyTorch gave up waiting for a collective."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nccl_inspect.event.types import Notice as NoticeEvent
from nccl_inspect.judging.engine import Account, Facts, Finding, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.facts import global_ranks, hosts_with
from nccl_inspect.judging.hangs.origin import origin
from nccl_inspect.judging.hangs.progress import suspects
from nccl_inspect.judging.hangs.watchdog import Wait, by_time, communicator_of_wait, in_words, latecomers, waits
from nccl_inspect.judging.line_order import short
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.retelling import STACK, retell
from nccl_inspect.judging.statements import rank_prefix
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.util.wording import capital, listed, ranks_word

RULE = Rule(
    name="watchdog-timeout",
    category="failures",
    tells=("waited",),
    title="PyTorch gave up waiting for a collective",
    shows=("death",),
    supersedes=("ended-from-outside",),
)
_UNKNOWN = "The log does not show which rank did not arrive"
_IMPACT = "PyTorch ends the process, and with it the job"
_RECORD = (
    "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1   # the flight recorder: the "
    "last calls of every rank",
    "TORCH_DISTRIBUTED_DEBUG=DETAIL   # compares the calls of all ranks",
)


class _Timeout(NamedTuple):
    """The process group that timed out first."""

    waits: list[Wait]
    """Those of its ranks, without latecomers."""
    comm: CommunicatorInfo | None
    other_groups: list[str]
    """The names of other groups that timed out."""

    @property
    def waiting(self) -> set[int]:
        """The ranks that waited."""
        return {wait.rank for wait in self.waits if wait.rank is not None}

    @property
    def summary(self) -> str:
        """Return who waited in which call of which group."""
        group = self.waits[0].group
        of_group = f" of process group {group}" if group is not None else ""
        in_comm = f", communicator {self.comm.id} with {self.comm.nranks} ranks" if self.comm else ""
        return f"{in_words(self.waits, of_group + in_comm)} and timed out"


def judge(facts: Facts) -> Results:
    """Judge the process group that timed out first; the story decides for whom its ranks waited."""
    if timeout := _timeout(facts):
        yield _finding(facts, timeout)
    else:
        yield from _reported_by_others(facts)


def tell(facts: Facts, account: Account) -> Finding:
    """Describe the ranks for which, by what all ranks say, the others waited."""
    if timeout := _timeout(facts):
        return _finding(facts, timeout, account)
    return retell(RULE, account, _UNKNOWN, STACK, *_RECORD, impact=_IMPACT)


def _finding(facts: Facts, timeout: _Timeout, account: Account | None = None) -> Finding:
    """Return the finding about a time-out, with the ranks that held the others up by the story."""
    ranks = set(account.ranks) if account else flight_recorder.proved(facts)
    who = account.who if account else ranks_word(ranks) if ranks else ""
    why = (
        f"By what all ranks say, {account.words}"
        if account
        else _why_recorded(facts, ranks)
        if ranks
        else _who_is_absent(timeout)
    )
    began = "likely began with" if account and account.kind == "call-unfinished" else "suspect:"
    where = f"; {account.words.partition(',')[0]}" if account and not who else ""
    others = [group for group in timeout.other_groups if group not in why]
    groups = f"Process group{'s' if len(others) > 1 else ''} {listed(others)}"
    also = f". {groups} also timed out: usually a consequence" if others else ""
    return RULE.finding(
        timeout.summary + (f"; {began} {who}" if who else where),
        cause=f"the lines show who waited, not why. {why}{suspects(facts)}{_of_threads(facts)}{also}",
        impact=_IMPACT,
        fix=[
            f"Look at the output of {who} first, and for a traceback."
            if who
            else "Find the rank that did not arrive: look at the output of every rank.",
            f"py-spy dump --pid <pid>   # on {who or 'every rank'}: where is it now?",
            *_RECORD,
            "A longer timeout (init_process_group(timeout=…)) helps only if a rank is slow, for example while "
            "writing a checkpoint; otherwise it hides the hang.",
        ],
        confidence=account.confidence if account and ranks else "certain",
        ranks=ranks or timeout.waiting,
        hosts=hosts_with(facts.job, ranks or timeout.waiting),
        evidence=[
            *first_evidence([wait.notice for wait in timeout.waits][: 2 if who else 3]),
            *(account.evidence[:2] if account else ()),
        ],
        fatal=True,
    )


def _why_recorded(facts: Facts, proved: set[int]) -> str:
    """Return what dumps prove, and whether the log alone pointed elsewhere."""
    alone = origin(facts, waits(facts))
    shown = f"The flight recorder's dumps show that the others wait for {ranks_word(proved)}"
    if alone is None or not alone.suspects or alone.suspects == proved:
        return shown
    return f"{shown}. The log alone points to {ranks_word(alone.suspects)}, but the dumps contradict it: {alone.words}"


def _who_is_absent(timeout: _Timeout) -> str:
    """Return which ranks of the group did not time out, without a guess at one of them."""
    members = global_ranks(timeout.comm, range(timeout.comm.nranks)) if timeout.comm else set[int]()
    if members and members == timeout.waiting:
        return "All ranks of the group waited in it"
    if absent := members - timeout.waiting if timeout.waiting else None:
        return f"{_UNKNOWN}: {ranks_word(absent)} did not time out in it"
    numbers = {wait.member for wait in timeout.waits if wait.member is not None}
    few = set(range(max(numbers, default=0))) - numbers
    if not few or len(few) >= len(numbers):
        return _UNKNOWN
    return f"{capital(ranks_word(few))} of the group did not time out: late or dead, or the output is missing"


def _timeout(facts: Facts) -> _Timeout | None:
    everything = by_time(waits(facts))
    if not everything:
        return None
    first = everything[0]
    own = [wait for wait in everything if wait.group == first.group]
    late = latecomers(own)
    own = [wait for wait in own if wait not in late]
    others = dict.fromkeys(wait.group for wait in everything if wait.group not in (first.group, None))
    return _Timeout(own, communicator_of_wait(facts, own), [group for group in others if group])


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
        impact=_IMPACT,
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


def _rank_of(notice: Notice) -> list[int]:
    """The rank that a line of PyTorch names, if any."""
    values = dict(notice.event.values) if isinstance(notice.event, NoticeEvent) else {}
    rank = values.get("global_rank", rank_prefix(notice))
    return [rank] if isinstance(rank, int) else []
