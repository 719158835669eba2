"""PyTorch gave up waiting for a collective."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.judging import at_end, exceptions
from nccl_inspect.judging.check import Account, Facts, Hit, Notice, first_evidence, tell_account, value
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.facts import global_ranks, hosts_with
from nccl_inspect.judging.line_order import short
from nccl_inspect.judging.statements import rank_prefix
from nccl_inspect.judging.watchdog import Wait, by_time, communicator_of_wait, latecomers, wait_words, waits
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.story.origin import origin
from nccl_inspect.util.wording import capitalize, list_words, ranks_word


def find(facts: Facts) -> Iterator[Hit]:
    """Find the process group that timed out first; the story decides for whom its ranks waited."""
    if waits(facts):
        yield _find_timeout(facts)
        return
    signals = [notice for notice in facts.with_role("watchdog-dump") if "timeout" in notice.message]
    if signals:  # only the dump signals on other ranks report it
        own = [notice for notice in signals if value(notice, "__self") is not None]
        origins = {value(notice, "origin_rank") for notice in signals if notice not in own} - {None}
        origins |= {rank for notice in own for rank in _rank_of(notice)}
        yield Hit(
            named={"origins": origins, "reporters": {rank for notice in signals for rank in _rank_of(notice)}},
            known=("reported",),
            ranks=origins,
            hosts=(),
            evidence=first_evidence(signals),
        )


def tell(facts: Facts, account: Account) -> Hit:
    """Return the ranks for which, by what all ranks say, the others waited."""
    return _find_timeout(facts, account) if waits(facts) else tell_account(facts, account)


def _find_timeout(facts: Facts, account: Account | None = None) -> Hit:
    """Return who waited in which call of the group that timed out first, and who held them up by the story."""
    everything = by_time(waits(facts))
    group = everything[0].group
    own = [wait for wait in everything if wait.group == group]
    late = latecomers(own)
    own = [wait for wait in own if wait not in late]
    comm = communicator_of_wait(facts, own)
    waiting = {wait.rank for wait in own if wait.rank is not None}
    of_group = f" of process group {group}" if group is not None else ""
    in_comm = f", communicator {comm.id} with {comm.nranks} ranks" if comm else ""
    ranks = set(account.ranks) if account else flight_recorder.blocking_ranks(facts)
    who = account.who if account else ranks_word(ranks) if ranks else ""
    told = account.words if account else ""
    alone = origin(facts, waits(facts)) if ranks and not account else None
    alone = alone if alone and alone.suspects and alone.suspects != ranks else None
    others = [name for name in dict.fromkeys(wait.group for wait in everything) if name not in (group, None)]
    others = [name for name in others if name and name not in f"{told} {alone.words if alone else ''}"]
    ended = exceptions.exceptions_of(facts).of_threads
    return Hit(
        named={
            "timeout": wait_words(own, of_group + in_comm),
            "who": who,
            "told_first": told.partition(",")[0] if not who else "",
            "by_all": told,
            "proved": ranks if not account else set(),
            "alone": alone.suspects if alone else set(),
            "alone_words": alone.words if alone else "",
            "suspects": at_end.suspects(facts),
            "thread": f"{ended[0].text} ({short(ended[0].line)})" if ended else "",
            "others": others,
            "groups": list_words(filter(None, others)),
            **({} if account or ranks else _find_absent(own, waiting, comm)),
        },
        known=(
            *(("began",) if account and account.kind == "call-unfinished" else ()),
            *(("others several",) if len(others) > 1 else ()),
        ),
        ranks=ranks or waiting,
        hosts=hosts_with(facts.job, ranks or waiting),
        evidence=[
            *first_evidence([wait.notice for wait in own][: 2 if who else 3]),
            *(account.evidence[:2] if account else ()),
        ],
        confidence=account.confidence if account and ranks else "certain",
    )


def _find_absent(own: list[Wait], waiting: set[int], comm: CommunicatorInfo | None) -> dict[str, object]:
    """Return which ranks of the group did not time out, without a guess at one of them."""
    members = global_ranks(comm, range(comm.nranks)) if comm else set[int]()
    if members and members == waiting:
        return {"all": True}
    if absent := members - waiting if waiting else None:
        return {"absent": absent}
    numbers = {wait.member for wait in own if wait.member is not None}
    few = set(range(max(numbers, default=0))) - numbers
    return {"few": capitalize(ranks_word(few)) if few and len(few) < len(numbers) else ""}


def _rank_of(notice: Notice) -> list[int]:
    """Return the rank that a line of PyTorch names, if any."""
    rank = value(notice, "global_rank")
    rank = rank_prefix(notice) if rank is None else rank
    return [rank] if isinstance(rank, int) else []
