"""A lost peer: which rank it was or may have been, why connections closed, and what to do, with the texts about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nccl_inspect.judging import placement
from nccl_inspect.judging.facts import Facts, hosts_in, hosts_with, ranks_in
from nccl_inspect.judging.hangs.watchdog import without_output
from nccl_inspect.judging.process_ends import exceptions, ray
from nccl_inspect.judging.process_ends.process_end import ProcessEnd
from nccl_inspect.judging.process_ends.silence import Silence, peers_lost
from nccl_inspect.model.inventory import LastLine
from nccl_inspect.model.job import Notice
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import listed, ranges, ranks_word

UNANSWERED = ("Connection timed out", "No route to host", "Network is unreachable")
"""Errors of transfers over a working connection that no process closed."""


@frozen
class Loss(Frozen):
    """A rank that went away without a report of its end."""

    silence: Silence
    echoes: list[Notice]
    """What the others report of it."""
    absent: set[int]
    """The only rank that may have gone away, if it has no line in the log."""
    possible: set[int]
    """The ranks of which one went away, if these are at most half of all."""

    @property
    def gone(self) -> set[int]:
        """The ranks that fell silent."""
        return {rank for last in self.silence.gone for rank in last.ranks}

    @property
    def ranks(self) -> set[int]:
        """The ranks that are gone, as closely as the log shows; else those that report it."""
        return self.gone or self.absent or self.possible or ranks_in(self.echoes)

    def hosts(self, facts: Facts) -> set[str]:
        """The hosts of ranks that are gone, else of those that report it."""
        gone = {last.process[0] for last in self.silence.gone}
        return gone or set(hosts_with(facts.job, self.possible)) or hosts_in(self.echoes)


def loss_of(facts: Facts, silence: Silence, echoes: list[Notice]) -> Loss:
    """What is known of a loss.

    Args:
        facts: about the job.
        silence: who fell silent before the others lost connections.
        echoes: the reports of the others.
    """
    candidates = set(silence.candidates)
    is_absent = len(candidates) == 1 and candidates.isdisjoint(facts.job.ranks_seen)
    are_few = not silence.gone and 1 < len(candidates) <= (facts.job.world_size or 0) / 2
    return Loss(silence, echoes, candidates if is_absent else set(), candidates if are_few else set())


def summary(facts: Facts, loss: Loss) -> str:
    """Which rank was lost, or which ranks lost connections to which peer."""
    silence, ranks = loss.silence, loss.gone
    if absent := exceptions.absent_ranks(facts):
        return f"{ranks_word(absent)} did not reach a barrier (monitoredBarrier), and the others gave up"
    if not silence.gone:
        victims = ranks_in(loss.echoes)
        who = f"{ranks_word(victims)}" if victims else "ranks"
        peers = peers_lost(loss.echoes)
        whom = f"a peer on {listed(peers)}" if peers else "a peer"
        return f"{who} lost connections to {whom}; {_unknown(facts, loss)}"
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


def cause(facts: Facts, loss: Loss) -> str:
    """Why the rank went away, or why connections closed."""
    if loss.silence.gone:
        return (
            "its lines stop without an error or a regular end: killed (out of memory, preemption, spot loss), crashed, "
            "or its machine was lost"
        )
    return why_closed(loss.echoes, is_here=bool(loss.possible) and loss.possible <= set(facts.job.ranks_seen))


def steps(facts: Facts, loss: Loss) -> Iterator[str]:
    """What to do, step by step."""
    if loss.possible:
        yield _first_of(facts, loss.possible)
    if loss.silence.gone:
        yield "kubectl describe pod <pod>; kubectl logs --previous <pod>   # OOMKilled, 137, Evicted?"
    else:
        yield "kubectl get pods -o wide   # which pod is gone, or was restarted?"
    yield "dmesg -T | grep -iE 'oom|xid|segfault'   # on its host"
    if loss.silence.gone:
        yield "Read that rank's own output: NCCL prints neither its traceback nor a segmentation fault."
    elif loss.absent:
        yield f"Add the log of {ranks_word(loss.absent)} to the input{_where(facts, loss.absent)}."
    else:
        yield "Add the logs of all ranks to the input: the one that ends first or has another error is the cause."


def _first_of(facts: Facts, some: set[int]) -> str:
    """What to do if one of a few ranks went away."""
    if some.isdisjoint(facts.job.ranks_seen):
        return f"Add the logs of {ranks_word(some)} to the input{_where(facts, some)}."
    return f"Look at the output of {ranks_word(some)} first: the one that ends first or has another error is the cause."


def _where(facts: Facts, ranks: Iterable[int]) -> str:
    """The hosts of ranks without a line, if the order of the ranks shows them."""
    homes = [home for rank in ranks if (home := placement.home(facts, rank))]
    return f" (host {homes[0].host}, local rank {homes[0].local_rank})" if homes else ""


def _unknown(facts: Facts, loss: Loss) -> str:
    """What is known about the rank that failed first, if it is not identified."""
    silence, seen = loss.silence, set(facts.job.ranks_seen)
    if loss.absent:
        absent = f"{ranks_word(loss.absent)}, which has no line in this log{_where(facts, loss.absent)}"
        return f"by elimination it was {absent}"
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


# Ranks that gave up because another one did not arrive, or was gone: whom they may have waited for


def on_their_own(ends: list[ProcessEnd]) -> list[ProcessEnd]:
    """The processes that ended on their own, if any; else all."""
    return [end for end in ends if end.echo is None] or ends


def suspects(facts: Facts, ends: list[ProcessEnd]) -> set[int]:
    """The ranks that the others may have waited for: those named, those without output, or one without a traceback."""
    if named := exceptions.absent_ranks(facts):
        return named
    # Of several tasks, Ray shows the exception that the driver received first.
    if any(ray.is_of_task(end.notice) for end in ends):
        return set()
    ranks = set(facts.job.ranks_seen)
    if (unseen := without_output(facts)) and len(unseen) <= len(ranks):
        return unseen
    gave_up = {rank for end in ends for rank in end.ranks} | {
        end.rank for end in exceptions.exceptions_of(facts).echoes
    }
    sizes = {comm.nranks for comm in facts.job.communicators}
    silent = ranks - gave_up
    return silent if len(silent) == 1 and sizes and max(sizes) == len(ranks) else set()


def summarize_given_up(facts: Facts, ends: list[ProcessEnd]) -> str:
    """Which ranks gave up, and which ranks they may have waited for."""
    first = ends[0]
    ranks = {rank for end in ends for rank in end.ranks}
    who, others = first.who, f", and {len(ends) - 1} more" if len(ends) > 1 else ""
    if first.has_given_up and ranks:
        who, others = first.who if len(ends) == 1 else ranks_word(ranks), ""
    suspected = set() if exceptions.absent_ranks(facts) else suspects(facts, ends)
    missing = "of which the log has no output" if suspected & without_output(facts) else "which printed no traceback"
    hint = f"; possibly because of {ranks_word(suspected)}, {missing}" if suspected else ""
    return f"{who} {first.how}{others}{hint}"


def remedies(suspected: set[int]) -> list[str]:
    """What to do if ranks gave up."""
    who = ranks_word(suspected) if suspected else "every rank"
    return [
        f"Look at the output of {who} first, and at the last step there.",
        f"py-spy dump --pid <pid>   # on {who}, before the time limit: where does it wait?",
        "dmesg -T | grep -iE 'oom|xid|segfault'   # on its host",
    ]
