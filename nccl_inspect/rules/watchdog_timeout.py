"""PyTorch gave up waiting for a collective."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nccl_inspect.event.types import Notice as NoticeEvent
from nccl_inspect.judging import at_end
from nccl_inspect.judging.engine import Account, Facts, Notice, first_evidence, value
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.facts import global_ranks, hosts_with
from nccl_inspect.judging.line_order import short
from nccl_inspect.judging.page_words import Hit, tell_account
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.statements import rank_prefix
from nccl_inspect.judging.watchdog import Wait, by_time, communicator_of_wait, in_words, latecomers, waits
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.util.wording import capital, listed, ranks_word


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
        return in_words(self.waits, of_group + in_comm)


def find(facts: Facts) -> Iterator[Hit]:
    """Find the process group that timed out first; the story decides for whom its ranks waited."""
    if timeout := _timeout(facts):
        yield _find_timeout(facts, timeout)
    else:
        yield from _find_reports(facts)


def tell(facts: Facts, account: Account) -> Hit:
    """Return the ranks for which, by what all ranks say, the others waited."""
    if timeout := _timeout(facts):
        return _find_timeout(facts, timeout, account)
    return tell_account(facts, account)


def _find_timeout(facts: Facts, timeout: _Timeout, account: Account | None = None) -> Hit:
    """Return a time-out with the ranks that held the others up by the story."""
    ranks = set(account.ranks) if account else flight_recorder.proved(facts)
    who = account.who if account else ranks_word(ranks) if ranks else ""
    absent = {} if account or ranks else _find_absent(timeout)
    told = account.words if account else ""
    others = [group for group in timeout.other_groups if group not in told]
    ended = exceptions.exceptions_of(facts).of_threads
    return Hit(
        named={
            "timeout": timeout.summary,
            "who": who,
            "told_first": told.partition(",")[0] if not who else "",
            "by_all": told,
            "proved": ranks if not account else set(),
            "suspects": at_end.suspects(facts),
            "thread": f"{ended[0].text} ({short(ended[0].line)})" if ended else "",
            "others": others,
            "groups": listed(others),
            **absent,
        },
        known=(
            *(("began",) if account and account.kind == "call-unfinished" else ()),
            *(("others several",) if len(others) > 1 else ()),
        ),
        ranks=ranks or timeout.waiting,
        hosts=hosts_with(facts.job, ranks or timeout.waiting),
        evidence=[
            *first_evidence([wait.notice for wait in timeout.waits][: 2 if who else 3]),
            *(account.evidence[:2] if account else ()),
        ],
        confidence=account.confidence if account and ranks else "certain",
    )


def _find_absent(timeout: _Timeout) -> dict[str, object]:
    """Return which ranks of the group did not time out, without a guess at one of them."""
    members = global_ranks(timeout.comm, range(timeout.comm.nranks)) if timeout.comm else set[int]()
    if members and members == timeout.waiting:
        return {"all": True}
    if absent := members - timeout.waiting if timeout.waiting else None:
        return {"absent": absent}
    numbers = {wait.member for wait in timeout.waits if wait.member is not None}
    few = set(range(max(numbers, default=0))) - numbers
    return {"few": capital(ranks_word(few)) if few and len(few) < len(numbers) else ""}


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


def _find_reports(facts: Facts) -> Iterator[Hit]:
    """Find a time-out that only the dump signals on other ranks report."""
    signals = [notice for notice in facts.with_role("watchdog-dump") if "timeout" in notice.message]
    origins = {rank for signal in signals for rank in _origin(signal)}
    reporters = {rank for signal in signals for rank in _rank_of(signal)}
    if signals:
        yield Hit(
            named={"origins": origins, "reporters": reporters},
            known=("reported",),
            ranks=origins,
            hosts=(),
            evidence=first_evidence(signals),
        )


def _origin(signal: Notice) -> list[int]:
    """The rank whose timeout caused a dump signal, if the line names it."""
    if value(signal, "__self") is not None:
        return _rank_of(signal)
    rank = value(signal, "origin_rank")
    return [] if rank is None else [rank]


def _rank_of(notice: Notice) -> list[int]:
    """The rank that a line of PyTorch names, if any."""
    values = dict(notice.event.values) if isinstance(notice.event, NoticeEvent) else {}
    rank = values.get("global_rank", rank_prefix(notice))
    return [rank] if isinstance(rank, int) else []
