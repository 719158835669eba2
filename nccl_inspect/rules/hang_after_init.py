"""Communicators that were initialized, then made no progress until the job was ended."""

from collections.abc import Iterator

from nccl_inspect.judging import at_end
from nccl_inspect.judging.check import Facts, Hit
from nccl_inspect.judging.ends import process_ends
from nccl_inspect.judging.facts import global_ranks
from nccl_inspect.judging.watchdog import without_output
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.model.statements import usage
from nccl_inspect.util.wording import count


def find(facts: Facts) -> Iterator[Hit]:
    """Find communicators that every rank completed and none ended, in logs that are provably complete."""
    job = facts.job
    if job.failed or facts.errors(forced_ends=False) or at_end.node_failed(facts):
        return
    comms = [
        comm for comm in usage.used_communicators(job) if len(comm.completed) == comm.nranks > 1 and not comm.ended
    ]
    open_ones = sorted((comm for comm in comms if comm.unconnected), key=lambda comm: not _odd_ranks(facts, comm))
    silent = [] if process_ends(facts) else at_end.unexplained_ends(facts)
    has_header = not job.ended_by and at_end.ends_with_empty_table(facts)
    if (cut := at_end.connections_at_end(facts)) and comms and not at_end.is_local_p2p(facts):
        comm = comms[0]
        yield Hit(
            named={
                **(_connecting(comm) if comm.unconnected else {}),
                "undecided": at_end.list_possible_ends(facts),
                "suspects": at_end.suspects(facts),
            },
            known=("clue",),
            ranks=[rank for rank in comm.ranks if rank is not None],
            hosts=comm.hosts,
            evidence=cut,
            open_paths=job.paths,
        )
    elif open_ones and not job.ended_by:
        yield Hit(named=_connecting(open_ones[0], len(open_ones) - 1), known=("question",))
    elif open_ones or (comms and silent and job.paths and not at_end.is_starting_another(facts)):
        comm = open_ones[0] if open_ones else comms[-1]
        tables = [] if open_ones else at_end.empty_tables(facts, silent)
        ends = job.ended_by if open_ones else [*tables[-1:], *silent]
        odd, unseen = _odd_ranks(facts, comm), without_output(facts)
        unseen = set() if odd else unseen
        is_shown = (tables or comm.unconnected or at_end.is_timed_out(ends)) and not unseen
        yield Hit(
            named={
                "comm": comm.id,
                "size": count(comm.nranks, "rank"),
                "unseen": unseen,
                "phases": at_end.phases(facts, comm),
                "suspects": at_end.suspects(facts),
                "suspicion": at_end.suspicion(facts),
            },
            known=(
                *(("unconnected",) if open_ones else ("no row",) if tables else ()),
                *(("gpudirect",) if any(kind.gdr for kind in facts.inter_host_net_paths().kinds) else ()),
            ),
            ranks=odd or [rank for rank in comm.ranks if rank is not None],
            hosts=comm.hosts,
            evidence=[*at_end.last_of(facts, comm), *ends[:2]],
            confidence="likely" if is_shown else "possible",
        )
    elif comms and has_header:
        yield Hit(known=("header",))
    elif not job.communicators and has_header:
        last = facts.notices("nccl-tests/test-units")[-1].evidence[-1]
        yield Hit(known=("empty",), ranks=(), hosts=facts.hosts(), evidence=[last])


def _odd_ranks(facts: Facts, comm: CommunicatorInfo) -> set[int]:
    return at_end.ranks_that_differ(facts) & {rank for rank in comm.ranks if rank is not None}


def _connecting(comm: CommunicatorInfo, others: int = 0) -> dict[str, object]:
    """Return which ranks began to connect, by their ranks in the communicator where the log does not show others."""
    idle = set(range(comm.nranks)) - set(comm.unconnected)
    return {
        "comm": comm.id,
        "busy": global_ranks(comm, comm.unconnected) or set(comm.unconnected),
        "idle": global_ranks(comm, idle) or idle,
        "others": others,
    }
