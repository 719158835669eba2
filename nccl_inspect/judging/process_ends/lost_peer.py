"""What is said of a peer that went away: which rank it was, or whom it may have been, and why connections closed."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.judging import placement
from nccl_inspect.judging.facts import Facts, ranks_in
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.process_ends.silence import Silence, peers_lost
from nccl_inspect.model.inventory import LastLine
from nccl_inspect.model.job import Notice
from nccl_inspect.util.wording import listed, ranges, ranks_word

UNANSWERED = ("Connection timed out", "No route to host", "Network is unreachable")
"""Why a transfer over a connection that had worked fails where nobody closed it."""


def summary(facts: Facts, silence: Silence, echoes: list[Notice]) -> str:
    """Who went away, or who lost connections to whom."""
    if absent := exceptions.absent_ranks(facts):
        return f"{ranks_word(absent)} did not come to a barrier (monitoredBarrier), and the others gave up"
    if not silence.gone:
        victims = ranks_in(echoes)
        who = f"{ranks_word(victims)}" if victims else "ranks"
        peers = peers_lost(echoes)
        whom = f"a peer on {listed(peers)}" if peers else "a peer"
        return f"{who} lost connections to {whom}; {_unknown(facts, silence)}"
    ranks = {rank for last in silence.gone for rank in last.ranks}
    if len(silence.gone) > 1:
        return f"{ranks_word(ranks)} fell silent before the others lost a connection: one of them went away, or all"
    last = silence.gone[0]
    place = f"{last.process.host}, pid {last.process.pid}{_gpu(facts, last)}"
    return f"{ranks_word(ranks)} ({place}) went away: silent after line {last.line}, others lost connections"


def _gpu(facts: Facts, last: LastLine) -> str:
    """The GPU of a process as its machine counts it; else as the process does, which may see some of them only."""
    known = {facts.job.gpus[rank].nvml_dev for rank in last.ranks if rank in facts.job.gpus}
    if len(known) == 1 and None not in known:
        return f", GPU {known.pop()}"
    return "" if last.device is None else f", CUDA device {last.device}"


def absent_of(facts: Facts, silence: Silence) -> set[int]:
    """The only rank that may have gone away, where it has no line in the log."""
    found = set(silence.candidates)
    return found if len(found) == 1 and found.isdisjoint(facts.job.ranks_seen) else set()


def one_of(facts: Facts, silence: Silence) -> set[int]:
    """The ranks of which one went away, where these are at most half of all; the others lost it."""
    found = set(silence.candidates)
    return found if not silence.gone and 1 < len(found) <= (facts.job.world_size or 0) / 2 else set()


def where(facts: Facts, ranks: Iterable[int]) -> str:
    """The hosts of ranks without a line, where the order of the ranks tells them."""
    homes = [home for rank in ranks if (home := placement.home(facts, rank))]
    return f" (host {homes[0].host}, local rank {homes[0].local_rank})" if homes else ""


def _unknown(facts: Facts, silence: Silence) -> str:
    """What is known of the rank that failed first where no more is."""
    seen = set(facts.job.ranks_seen)
    if absent := absent_of(facts, silence):
        return f"{ranks_word(absent)} went away by elimination, and has no line in this log{where(facts, absent)}"
    if silence.candidates and not seen.intersection(silence.candidates):
        return f"the first failing rank is not in this log: one of ranks {ranges(silence.candidates)}"
    if 1 < len(silence.candidates) < (facts.job.world_size or 0):
        return f"one of ranks {ranges(silence.candidates)} failed first: they are silent from then on"
    world = facts.job.world_size
    if world and facts.job.rank_space == "global" and seen.issuperset(range(world)):
        return "this log does not tell which rank failed first"
    return "the first failing rank is not in this log"


def why_closed(echoes: list[Notice], *, is_here: bool = False) -> str:
    """What is known where no process is: who ends closes its connections, and a lost machine does not.

    Args:
        echoes: what the others say.
        is_here: whether those that may have failed first have lines in the log.
    """
    if all(any(word in one.message for word in UNANSWERED) for one in echoes):
        return (
            "nothing closed the connection, it got no answer any more: the peer's machine or the network between was "
            "lost. Look at both; the log of the peer is not here, or does not tell"
        )
    if is_here:
        return "every line about it is an echo from its peers: the rank that failed first prints no error here"
    return "every line about it is an echo: these ranks are victims of one whose log is not here, or does not tell"
