"""Texts about a lost peer: which rank it was or may have been, and why connections closed."""

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
"""Errors of transfers over a working connection that no process closed."""


def summary(facts: Facts, silence: Silence, echoes: list[Notice]) -> str:
    """Which rank was lost, or which ranks lost connections to which peer."""
    if absent := exceptions.absent_ranks(facts):
        return f"{ranks_word(absent)} did not reach a barrier (monitoredBarrier), and the others gave up"
    if not silence.gone:
        victims = ranks_in(echoes)
        who = f"{ranks_word(victims)}" if victims else "ranks"
        peers = peers_lost(echoes)
        whom = f"a peer on {listed(peers)}" if peers else "a peer"
        return f"{who} lost connections to {whom}; {_unknown(facts, silence)}"
    ranks = {rank for last in silence.gone for rank in last.ranks}
    if len(silence.gone) > 1:
        return f"{ranks_word(ranks)} fell silent before the others lost a connection: one of them, or all, went away"
    last = silence.gone[0]
    place = f"{last.process.host}, pid {last.process.pid}{_gpu(facts, last)}"
    return f"{ranks_word(ranks)} ({place}) went away: silent after line {last.line}, then its peers lost connections"


def _gpu(facts: Facts, last: LastLine) -> str:
    """The GPU of a process by its index on the machine; else by that in the process, which may see only some GPUs."""
    devices = {facts.job.gpus[rank].nvml_dev for rank in last.ranks if rank in facts.job.gpus}
    if len(devices) == 1 and None not in devices:
        return f", GPU {devices.pop()}"
    return "" if last.device is None else f", CUDA device {last.device}"


def absent_rank(facts: Facts, silence: Silence) -> set[int]:
    """The only rank that may have gone away, if it has no line in the log."""
    candidates = set(silence.candidates)
    return candidates if len(candidates) == 1 and candidates.isdisjoint(facts.job.ranks_seen) else set()


def possible_ranks(facts: Facts, silence: Silence) -> set[int]:
    """The ranks of which one went away, if these are at most half of all."""
    candidates = set(silence.candidates)
    return candidates if not silence.gone and 1 < len(candidates) <= (facts.job.world_size or 0) / 2 else set()


def where(facts: Facts, ranks: Iterable[int]) -> str:
    """The hosts of ranks without a line, if the order of the ranks shows them."""
    homes = [home for rank in ranks if (home := placement.home(facts, rank))]
    return f" (host {homes[0].host}, local rank {homes[0].local_rank})" if homes else ""


def _unknown(facts: Facts, silence: Silence) -> str:
    """What is known about the rank that failed first, if it is not identified."""
    seen = set(facts.job.ranks_seen)
    if absent := absent_rank(facts, silence):
        return f"by elimination it was {ranks_word(absent)}, which has no line in this log{where(facts, absent)}"
    if silence.candidates and not seen.intersection(silence.candidates):
        return f"the first failing rank is not in this log: one of ranks {ranges(silence.candidates)}"
    if 1 < len(silence.candidates) < (facts.job.world_size or 0):
        return f"one of ranks {ranges(silence.candidates)} failed first: they are silent from then on"
    world = facts.job.world_size
    if world and facts.job.rank_space == "global" and seen.issuperset(range(world)):
        return "this log does not show which rank failed first"
    return "the first failing rank is not in this log"


def why_closed(echoes: list[Notice], *, is_here: bool = False) -> str:
    """The cause if the process is unknown: a process that ends closes its connections, a lost machine does not.

    Args:
        echoes: the reports of the others.
        is_here: whether the ranks that may have failed first have lines in the log.
    """
    if all(any(word in notice.message for word in UNANSWERED) for notice in echoes):
        return (
            "the connection was not closed but stopped responding: the peer's machine or the network to it was lost. "
            "Check both; the log of the peer is missing, or does not show it"
        )
    if is_here:
        return "every line about it is an echo from its peers: the rank that failed first printed no error in this log"
    return "every line about it is an echo: these ranks are victims of one whose log is missing, or does not show why"
