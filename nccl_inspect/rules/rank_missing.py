"""Ranks that never started to create the communicator while the others wait for them."""

from nccl_inspect.judging.engine import Facts, Finding, Needs, Results, Rule
from nccl_inspect.judging.facts import global_ranks
from nccl_inspect.judging.hangs import standstill
from nccl_inspect.judging.hangs.progress import absent_elsewhere, node_failed, phases, suspects
from nccl_inspect.judging.process_ends.ends import silent_workers
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.util.wording import ranks_word

RULE = Rule(
    name="rank-missing",
    category="failures",
    tells=("never-began",),
    title="Ranks never started, and all others are waiting for them",
    shows=("death",),
    supersedes=("ended-from-outside",),
)


def judge(facts: Facts) -> Results:
    """Judge world communicators that no rank completed: if any rank completed one, all had started it."""
    if facts.job.failed or facts.errors(forced_ends=False) or node_failed(facts):
        return
    idle = sum(not last.ranks for last in facts.job.last_lines)
    for comm in facts.job.communicators:
        if comm.parent is not None or comm.completed or comm.ended or comm.nranks - len(comm.started) <= idle:
            continue  # processes without a communicator yet may be the absent ranks
        if facts.paths_of(comm) or absent_elsewhere(facts, comm):
            continue
        absent = set(range(comm.nranks)) - set(comm.started)
        mute = silent_workers(facts)
        pids = mute if len(mute) == len(absent) else []
        is_whole = len(comm.hosts) > 1 and standstill.shows_beginning(facts, comm)
        is_ended = facts.job.ended_by and (is_whole or pids)
        if is_ended or standstill.is_stuck(facts):
            yield _finding(facts, comm, absent, pids)
        else:
            yield RULE.undecided(
                f"{ranks_word(absent)} of {comm.nranks} {'has' if len(absent) == 1 else 'have'} no line: not started, "
                f"{'its log is' if len(absent) == 1 else 'their logs are'} missing, or the log was cut",
                Needs("the logs of all ranks, up to the kill, the timeout or the next prompt", all_ranks=True),
            )
        return  # later communicators wait for the first stuck one


def _finding(facts: Facts, comm: CommunicatorInfo, absent: set[int], pids: list[int]) -> Finding:
    is_ended = bool(facts.job.ended_by)
    return RULE.finding(
        _summary(comm, absent) if is_ended else standstill.describe(facts),
        cause=f"unknown from this log{_reason(pids)}. Progress of the ranks: {phases(facts, comm)}"
        f"{standstill.where_missing(facts)}{suspects(facts)}",
        impact="the job does not start; NCCL waits without a time limit",
        fix=[
            f"Find {ranks_word(absent)}: check the pods and their previous logs, and the scheduler's tasks.",
            "kubectl get pods -o wide; kubectl logs --previous <pod>",
            "Use the same MASTER_ADDR, MASTER_PORT and world size everywhere; --nnodes of torchrun must be "
            "the number of launchers.",
            "NCCL_DEBUG_FILE=/logs/nccl.%h.%p.log   # then read the logs of all ranks: nccl-inspect summarize /logs",
        ],
        confidence="likely",
        ranks=global_ranks(comm, absent),
        hosts=comm.hosts,
        evidence=[*standstill.evidence(facts), *facts.job.ended_by[:1]],
        fatal=True,
        open_end=not is_ended,
    )


def _summary(comm: CommunicatorInfo, absent: set[int]) -> str:
    waiting = "the other rank is" if len(comm.started) == 1 else f"the other {len(comm.started)} are"
    them = "it" if len(absent) == 1 else "them"
    return f"{ranks_word(absent)} of {comm.nranks} never started; {waiting} waiting for {them}"


def _reason(pids: list[int]) -> str:
    """Return what may have become of the ranks, by the pids that the launcher gave them, if it names them."""
    if not pids:
        return (
            "; likely: not launched, dead before NCCL, different MASTER_ADDR or world size, or its log is missing from "
            "the input"
        )
    return (
        f": the launcher started pid {', '.join(map(str, pids[:8]))}, which printed no line of NCCL: stuck or slow "
        "before it, or in an earlier step of the program"
    )
