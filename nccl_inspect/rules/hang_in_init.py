"""Ranks that began to build a communicator and never finished, without an error."""

from collections.abc import Iterable, Iterator

from nccl_inspect.event.types import NetDevices, P2pCheck
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, ends, first_said, global_ranks, hosts_in, hosts_of, ranks_in
from nccl_inspect.judging.hangs import standstill
from nccl_inspect.judging.hangs.progress import (
    absent_elsewhere,
    broken_off,
    is_local_p2p,
    node_failed,
    phases,
    silenced_at_once,
    suspects,
    suspicion,
)
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, Needs, NotJudged
from nccl_inspect.model.job import CommunicatorInfo, Selection
from nccl_inspect.model.versions import order
from nccl_inspect.util.wording import count, does, ranks_word

RULE = Rule(
    name="hang-in-init",
    category="failures",
    severity="error",
    title="Ranks began to build a communicator and never finished",
    echoes=("nonblocking-timeout",),
    supersedes=("ended-from-outside",),
)
_REACH = "Let all hosts reach each other on all TCP ports of the bootstrap interface (NetworkPolicy, firewall)."
_EACH_STEP = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,BOOTSTRAP,NET   # on all ranks: shows the last step of each"
_SAME_RELEASE = "python -c 'import torch; print(torch.cuda.nccl.version())'   # on every node: the same release?"
_STARTS_AT_ONCE = (2, 23)
"""The first release that prints Init START before ranks meet (bootstrapInit), and not after it (src/init.cc)."""
_END = Needs("the end of the log of every rank, up to the kill, the timeout or the next prompt", all_ranks=True)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge START without COMPLETE and without an error; only a line that ends the job proves that the log is whole."""
    if facts.job.failed or facts.failures() or node_failed(facts):
        return
    if cut := broken_off(facts):
        if not is_local_p2p(facts) and not any(comm.completed for comm in facts.job.communicators):
            yield _connecting(facts, cut)
        return
    if not facts.job.communicators:
        yield from _before_start(facts)
        return
    for comm in facts.job.communicators:
        waiting = sorted(set(comm.started) - set(comm.completed))
        if not waiting:
            continue
        if paths := facts.paths_of(comm):  # it was complete, though a line of it may be lost
            if silent := _silent(facts, comm, waiting):
                yield RULE.undecided(
                    f"{ranks_word(silent)} of communicator {comm.id} began and printed nothing more, while others are "
                    "connected: stuck, or the log was cut there",
                    Needs("the end of the log of these ranks"),
                    paths=_touching(paths, silent),
                )
            continue
        if facts.job.ended_by or standstill.is_stuck(facts):
            yield _finding(facts, comm, waiting)
        else:
            yield _cut_or_stuck(
                facts,
                _how_far(facts, comm, waiting),
                global_ranks(comm, waiting),
                standstill.evidence(facts) or comm.evidence[:2],
            )
        return  # what follows the first stuck communicator waits for it


def _touching(paths: Selection, ranks: set[int]) -> Selection:
    return paths.only(("src", "dst"), lambda *ends: not ranks.isdisjoint(ends))


def _how_far(facts: Facts, comm: CommunicatorInfo, waiting: list[int]) -> str:
    """How far the ranks came by the end of the log, and which have no line."""
    absent = set() if comm.completed else set(range(comm.nranks)) - set(comm.started)
    has = "has" if len(absent) == 1 else "have"
    initialise = does(len(waiting), "initialise")
    rest = f" and {ranks_word(absent)} of {comm.nranks} {has} not begun" if absent else ""
    return f"the log ends while {count(len(waiting), 'rank')} of communicator {comm.id} {initialise}{rest}"


def _silent(facts: Facts, comm: CommunicatorInfo, waiting: list[int]) -> set[int]:
    """Those of waiting ranks of which no later line is there, in a log that lost none by tearing."""
    if any(source.damaged_lines for source in facts.job.sources):
        return set()
    spoke = {*comm.connected, *comm.unconnected, *comm.ended}
    return global_ranks(comm, [rank for rank in waiting if rank not in spoke])


def _elsewhere(facts: Facts, comm: CommunicatorInfo, waiting: list[int], absent: set[int]) -> Finding:
    """Ranks that are in the log with other communicators, and did not come to this one."""
    who, they = ranks_word(absent), global_ranks(comm, waiting)
    is_ended = bool(facts.job.ended_by)
    return RULE.finding(
        f"{who} did not call for communicator {comm.id} ({comm.nranks} ranks), and {ranks_word(they)} "
        f"{does(len(they), 'wait')} there{suspicion(facts)}",
        cause=f"{who} {'is' if len(absent) == 1 else 'are'} in the log with other communicators: "
        "the program went another way there (a branch, a group that only some ranks make, a send without its receive), "
        f"or it is stuck or ended before. How far the ranks came in this one: {phases(facts, comm)}{suspects(facts)}",
        impact="the ranks wait for each other; NCCL itself waits without a time limit",
        fix=[
            f"py-spy dump --pid <pid>   # {who}: where is it now?",
            "Look for a group, a send or a receive in a branch that only some ranks take.",
            _EACH_STEP,
        ],
        confidence="likely",
        ranks=absent,
        hosts=(host.name for host in facts.job.hosts if absent & set(host.ranks)),
        evidence=[*(standstill.evidence(facts) or comm.evidence[:3]), *facts.job.ended_by[-2:]],
        fatal=True,
        open_end=not is_ended,
    )


def _finding(facts: Facts, comm: CommunicatorInfo, waiting: list[int]) -> Finding:
    if elsewhere := absent_elsewhere(facts, comm):
        return _elsewhere(facts, comm, waiting, elsewhere)
    absent = sorted(set(range(comm.nranks)) - set(comm.started))
    missing = ". What never began was not started, died before NCCL, or its log is not here" if absent else ""
    is_ended = bool(facts.job.ended_by)
    have = "did not finish" if is_ended else "have not finished"
    return RULE.finding(
        f"{count(len(waiting), 'rank')} of communicator {comm.id} ({comm.nranks} ranks) began and {have} the "
        f"initialisation{suspicion(facts)}"
        if is_ended or len(absent) > len(standstill.idle(facts))  # then rank-missing tells the rest
        else standstill.in_words(facts) + suspicion(facts),
        cause=f"unknown from this log. How far the ranks came: {phases(facts, comm)}{missing}{suspects(facts)}",
        impact="the job does not start; NCCL itself waits without a time limit",
        fix=[
            *([_SAME_RELEASE] if len(facts.job.nccl_versions) > 1 else []),
            f"Look for {ranks_word(absent)}: the list of pods, the scheduler, their own logs."
            if absent
            else "py-spy dump --pid <pid>   # (or gdb) on a waiting rank: where does it stand?",
            _REACH,
            _EACH_STEP,
        ],
        confidence="likely",
        ranks=global_ranks(comm, waiting),
        hosts=comm.hosts,
        evidence=[*(standstill.evidence(facts) or comm.evidence[:3]), *facts.job.ended_by[-2:]],
        fatal=True,
        open_end=not is_ended,
    )


def _before_start(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge processes that looked for their network, where ranks meet before Init START is printed."""
    releases = facts.job.nccl_versions
    said = facts.said(NetDevices)
    silent = silenced_at_once(facts, facts.job.ended_by)
    who = count(len({process for notice in said for process in notice.processes}), "process", "es")
    starts_late = releases and not any("inferred" in text or order(text) >= _STARTS_AT_ONCE for text in releases)
    if said and silent and starts_late:
        yield RULE.finding(
            f"{who} found a network, and no communicator began until the job was ended",
            cause="unknown from this log. "
            "Until 2.22 NCCL prints Init START only when all ranks have met, so these waited for "
            "ranks that were not started, that died before, or that cannot reach rank 0",
            impact="the job does not start; NCCL itself waits without a time limit",
            fix=[
                "Count the processes: as many as WORLD_SIZE must run, on all nodes; look at the logs of the others.",
                "echo $MASTER_ADDR $MASTER_PORT $WORLD_SIZE $RANK   # on every node: the same address and size?",
                _REACH,
                _EACH_STEP,
            ],
            confidence="likely",
            hosts=hosts_in(said),
            evidence=[*first_said(said), *silent[:1]],
            fatal=True,
        )
    elif not facts.job.paths and _ends_with_nccl(facts):
        building = facts.said(P2pCheck)
        if said or building:
            step = "build a communicator" if building else "look for their network"
            yield _cut_or_stuck(
                facts, f"the log ends while ranks {step}", ranks_in(building), first_said(building or said)[:2]
            )


def _ends_with_nccl(facts: Facts) -> bool:
    """Whether nothing follows NCCL's last line: a program that prints goes on."""
    lines = {source.name: source.lines for source in facts.job.sources}
    return any(lines.get(last.source) == last.order for last in facts.job.last_lines)


def _cut_or_stuck(facts: Facts, what: str, ranks: Iterable[int], evidence: list[Evidence]) -> Finding | NotJudged:
    warned = any(notice.level == "WARN" for notice in facts.job.notices)  # that says more than where the log ends
    if facts.job.going_on or warned:
        return RULE.undecided(f"{what}: stuck, or the log was cut there", _END)
    return RULE.clue(
        f"{what}{standstill.undecided(facts)}",
        cause="unknown from this log; likely: "
        "the log was cut off there, or the ranks wait for each other because one never started or "
        f"died before, or because the hosts cannot reach each other{suspects(facts)}",
        impact="if it is stuck, the job does not start; NCCL itself waits without a time limit",
        fix=["py-spy dump --pid <pid>   # (or gdb) on a waiting rank: where does it stand?", _REACH, _EACH_STEP],
        confirm="Check whether the log goes on: every rank of a sound job prints 'Init COMPLETE'. If not, pass "
        f"{_END}.",
        severity="info",
        confidence="possible",
        ranks=ranks,
        hosts=facts.hosts(),
        evidence=evidence,
    )


def _connecting(facts: Facts, cut: list[Evidence]) -> Finding:
    paths = facts.job.paths
    return RULE.clue(
        f"the log ends while ranks connect{standstill.undecided(facts)}",
        cause="unknown from this log; likely: "
        "the log was cut off there, or the ranks are stuck. Usual causes are then blocked ports of "
        f"the data network, lost packets (MTU, GID), or ranks with different settings{suspects(facts)}",
        impact="if it is stuck, the job does not start; NCCL itself waits without a time limit",
        fix=[
            "py-spy dump --pid <pid>   # (or gdb) on a waiting rank: where does it stand?",
            "Let all hosts reach each other on all ports of the data network, with one MTU; test with nccl-tests.",
            _EACH_STEP,
        ],
        confirm="Check whether the log goes on: every rank of a sound job prints 'Connected all rings' or "
        "'Init COMPLETE'.",
        severity="info",
        confidence="possible",
        ranks=ends(paths),
        hosts=hosts_of(paths),
        evidence=cut,
        open_paths=paths,
    )
