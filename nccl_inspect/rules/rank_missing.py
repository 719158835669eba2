"""Ranks that never started to create the communicator while the others wait for them."""

from collections.abc import Iterator

from nccl_inspect.judging import at_end
from nccl_inspect.judging.check import Facts, Hit
from nccl_inspect.judging.ends import silent_workers
from nccl_inspect.judging.facts import global_ranks


def find(facts: Facts) -> Iterator[Hit]:
    """Find world communicators that no rank completed: if any rank completed one, all had started it."""
    if facts.job.failed or facts.errors(forced_ends=False) or at_end.node_failed(facts):
        return
    idle = sum(not last.ranks for last in facts.job.last_lines)
    for comm in facts.job.communicators:
        if comm.parent is not None or comm.completed or comm.ended or comm.nranks - len(comm.started) <= idle:
            continue  # processes without a communicator yet may be the absent ranks
        if facts.paths_of(comm) or at_end.absent_elsewhere(facts, comm):
            continue
        absent, mute = set(range(comm.nranks)) - set(comm.started), silent_workers(facts)
        pids = mute if len(mute) == len(absent) else []
        is_whole = len(comm.hosts) > 1 and at_end.shows_beginning(facts, comm)
        named: dict[str, object] = {"absent": absent, "size": comm.nranks, "one": len(absent) == 1}
        if not (facts.job.ended_by and (is_whole or pids)) and not at_end.is_stuck(facts):
            yield Hit(named=named, known=("question",))
            return  # later communicators wait for the first stuck one
        named |= {
            "state": "" if facts.job.ended_by else at_end.describe(facts),
            "started": len(comm.started),
            "pids": ", ".join(map(str, pids[:8])),
            "phases": at_end.phases(facts, comm),
            "missing": at_end.where_missing(facts),
            "suspects": at_end.suspects(facts),
        }
        yield Hit(
            named=named,
            known=("alone",) if len(comm.started) == 1 else (),
            ranks=global_ranks(comm, absent),
            hosts=comm.hosts,
            evidence=[*at_end.evidence(facts), *facts.job.ended_by[:1]],
            open_end=not facts.job.ended_by,
        )
        return
