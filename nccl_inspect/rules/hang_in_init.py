"""Ranks started to initialize a communicator and never finished, without an error."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.event.types import NetDevices, P2pCheck
from nccl_inspect.judging.engine import (
    Account,
    Evidence,
    Facts,
    Finding,
    Needs,
    Notice,
    NotJudged,
    Results,
    Rule,
    first_evidence,
)
from nccl_inspect.judging.facts import global_ranks, hosts_in, hosts_of_paths, ranks_in, ranks_of_paths
from nccl_inspect.judging.hangs import standstill
from nccl_inspect.judging.hangs.progress import (
    absent_elsewhere,
    connections_at_end,
    ends_after_nccl,
    is_local_p2p,
    node_failed,
    phases,
    suspects,
    suspicion,
)
from nccl_inspect.judging.retelling import STACK, retell
from nccl_inspect.model.job import CommunicatorInfo, Selection
from nccl_inspect.model.versions import order
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import count, does, ranks_word

RULE = Rule(
    name="hang-in-init",
    category="failures",
    tells=("never-began",),
    title="Ranks started to initialize a communicator and never finished",
    shows=("death",),
    supersedes=("ended-from-outside",),
)
_WAITING = "py-spy dump --pid <pid>   # (or gdb) on a waiting rank: where does it wait?"
_LOOK_FOR = "Look for {who}: check the pod list, the scheduler and their own logs."
_LAST_LINE = "Look at the output of {who} from its last line on."
_REACH = "Open all TCP ports of the bootstrap interface between all hosts (NetworkPolicy, firewall)."
_EACH_STEP = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,BOOTSTRAP,NET   # on all ranks: shows the last step of each"
_SAME_RELEASE = "python -c 'import torch; print(torch.cuda.nccl.version())'   # on every node: the same release?"
_STARTS_AT_ONCE = (2, 23)
"""The first release that prints Init START before ranks meet (bootstrapInit), not after (src/init.cc)."""
_END = Needs("the end of the log of every rank, up to the kill, the timeout or the next prompt", all_ranks=True)


@frozen
class _Hang(Frozen):
    """A communicator that some ranks started and did not finish."""

    comm: CommunicatorInfo
    waiting: list[int]
    """These ranks of the communicator."""

    @property
    def ranks(self) -> set[int]:
        """Return the same as ranks of the job."""
        return global_ranks(self.comm, self.waiting)

    @property
    def absent(self) -> set[int]:
        """The ranks of the communicator that have not started it."""
        return set(range(self.comm.nranks)) - set(self.comm.started)


def judge(facts: Facts) -> Results:
    """Judge START without COMPLETE and without an error; only the end of the job proves the log complete."""
    if facts.job.failed or facts.errors(forced_ends=False) or node_failed(facts):
        return
    if cut := connections_at_end(facts):
        if not is_local_p2p(facts) and not any(comm.completed for comm in facts.job.communicators):
            yield _connecting(facts, cut)
        return
    if not facts.job.communicators:
        yield from _before_start(facts)
        return
    for comm in facts.job.communicators:
        hang = _Hang(comm, sorted(set(comm.started) - set(comm.completed)))
        if not hang.waiting:
            continue
        if paths := facts.paths_of(comm):  # it was complete, though a line of it may be lost
            if silent := _silent(facts, hang):
                yield RULE.undecided(
                    f"{ranks_word(silent)} of communicator {comm.id} started and printed nothing more, while others "
                    "are connected: stuck, or the log was cut there",
                    Needs("the end of the log of these ranks"),
                    paths=_touching(paths, silent),
                )
            continue
        elsewhere = absent_elsewhere(facts, comm)
        if facts.job.ended_by or standstill.is_stuck(facts):
            yield _elsewhere(facts, hang, elsewhere) if elsewhere else _finding(facts, hang)
        else:
            evidence = standstill.evidence(facts) or comm.evidence[:2]
            yield _cut_or_stuck(facts, _how_far(hang, elsewhere), elsewhere or hang.ranks, evidence)
        return  # what follows the first stuck communicator waits for it


def tell(facts: Facts, account: Account) -> Finding:
    """Describe ranks that never began a communicator in which others wait."""
    cause, steps = "its process is busy or stuck before that call, or ended", [STACK, _LAST_LINE]
    if not account.pids:
        cause, steps = "it was not launched, died before NCCL, or its log is not here", [_LOOK_FOR, _REACH]
    impact = "the ranks wait for each other; NCCL itself waits without a timeout"
    finding = retell(RULE, account, cause, *steps, _EACH_STEP, impact=impact)
    is_open = not (facts.job.ended_by or facts.job.failed)
    return finding.with_fields(evidence=[*finding.evidence[:2], *facts.job.ended_by[-2:]], open_end=is_open)


def _touching(paths: Selection, ranks: set[int]) -> Selection:
    return paths.only(("src", "dst"), lambda *ends: not ranks.isdisjoint(ends))


def _how_far(hang: _Hang, elsewhere: set[int]) -> str:
    """Return how far the ranks came by the end of the log, and which have no line, as ranks of the job if known."""
    comm, number = hang.comm, len(hang.waiting)
    absent = set() if comm.completed else hang.absent
    has = "has" if len(absent) == 1 else "have"
    who = ranks_word(elsewhere) if elsewhere else f"{ranks_word(absent)} of {comm.nranks}"
    rest = f" and {who} {has} not started" if absent else ""
    initialize = does(number, "initialize")
    return f"the log ends while {count(number, 'rank')} of communicator {comm.id} {initialize}{rest}"


def _silent(facts: Facts, hang: _Hang) -> set[int]:
    """The waiting ranks without a later line, in a log that has no damaged lines."""
    if any(source.damaged_lines for source in facts.job.sources):
        return set()
    comm = hang.comm
    printed = {*comm.connected, *comm.unconnected, *comm.ended}
    return global_ranks(comm, [rank for rank in hang.waiting if rank not in printed])


def _elsewhere(facts: Facts, hang: _Hang, absent: set[int]) -> Finding:
    """Ranks that use other communicators and did not join this one."""
    comm, who = hang.comm, ranks_word(absent)
    return RULE.finding(
        f"{who} did not join communicator {comm.id} ({comm.nranks} ranks), and {ranks_word(hang.ranks)} "
        f"{does(len(hang.ranks), 'wait')} there{suspicion(facts)}",
        cause=f"{who} {'uses' if len(absent) == 1 else 'use'} other communicators in this log: "
        "the program took another path (a branch, a group that only some ranks create, a send without its "
        f"receive), is stuck, or ended before. How far the ranks came in this one: {phases(facts, comm)}"
        f"{suspects(facts)}",
        impact="the ranks wait for each other; NCCL itself waits without a timeout",
        fix=[
            f"py-spy dump --pid <pid>   # {who}: what is it doing?",
            "Look for a group, a send or a receive in a branch that only some ranks take.",
            _EACH_STEP,
        ],
        confidence="likely",
        ranks=absent,
        hosts=(host.name for host in facts.job.hosts if absent & set(host.ranks)),
        evidence=_evidence(facts, comm),
        fatal=True,
        open_end=not facts.job.ended_by,
    )


def _finding(facts: Facts, hang: _Hang) -> Finding:
    comm, absent = hang.comm, hang.absent
    who = ranks_word(absent) + (f" of {comm.id}" if None in comm.ranks else "")
    missing = (
        ". Ranks that never started were not launched, died before NCCL, or their logs are not here" if absent else ""
    )
    return RULE.finding(
        _summary(facts, hang) + suspicion(facts),
        cause=f"unknown from this log. How far the ranks came: {phases(facts, comm)}{missing}{suspects(facts)}",
        impact="the job does not start; NCCL itself waits without a timeout",
        fix=[
            *([_SAME_RELEASE] if len(facts.job.nccl_versions) > 1 else []),
            _LOOK_FOR.replace("{who}", who) if absent else _WAITING,
            _REACH,
            _EACH_STEP,
        ],
        confidence="likely",
        ranks=_all_waiting(facts) if None in comm.ranks else hang.ranks,
        hosts=comm.hosts,
        evidence=_evidence(facts, comm),
        fatal=True,
        open_end=not facts.job.ended_by,
    )


def _all_waiting(facts: Facts) -> set[int]:
    """Return the ranks that wait for some whose logs are elsewhere: each of them may be the first one stuck."""
    hangs = (_Hang(comm, comm.started) for comm in facts.job.communicators if not comm.completed)
    return {rank for hang in hangs if not facts.paths_of(hang.comm) for rank in hang.ranks}


def _summary(facts: Facts, hang: _Hang) -> str:
    if not facts.job.ended_by and len(hang.absent) <= len(standstill.idle_processes(facts)):
        return standstill.describe(facts)  # with more absent ranks, rank-missing describes them
    have = "did not finish" if facts.job.ended_by else "have not finished"
    communicator = f"communicator {hang.comm.id} ({hang.comm.nranks} ranks)"
    return f"{count(len(hang.waiting), 'rank')} of {communicator} started and {have} initialization"


def _evidence(facts: Facts, comm: CommunicatorInfo) -> list[Evidence]:
    return [*(standstill.evidence(facts) or comm.evidence[:3]), *facts.job.ended_by[-2:]]


def _before_start(facts: Facts) -> Results:
    """Judge processes that initialized their network, where ranks meet before Init START is printed."""
    releases, lists = facts.job.nccl_versions, facts.with_event(NetDevices)
    ends = ends_after_nccl(facts, facts.job.ended_by)
    starts_late = releases and not any("inferred" in text or order(text) >= _STARTS_AT_ONCE for text in releases)
    if lists and ends and starts_late:
        yield _not_met(lists, ends)
    elif not facts.job.paths and _ends_with_nccl(facts):
        building = facts.with_event(P2pCheck)
        if lists or building:
            step = "build a communicator" if building else "look for their network"
            yield _cut_or_stuck(
                facts, f"the log ends while ranks {step}", ranks_in(building), first_evidence(building or lists)[:2]
            )


def _not_met(lists: list[Notice], ends: list[Evidence]) -> Finding:
    who = count(len({process for notice in lists for process in notice.processes}), "process", "es")
    return RULE.finding(
        f"{who} found a network, but no communicator started until the job was ended",
        cause="unknown from this log. Until 2.22 NCCL prints Init START only when all ranks have met, so they waited "
        "for ranks that were not launched, that died before, or that cannot reach rank 0",
        impact="the job does not start; NCCL itself waits without a timeout",
        fix=[
            "Count the processes on all nodes: WORLD_SIZE of them must run. Look at the logs of the others.",
            "echo $MASTER_ADDR $MASTER_PORT $WORLD_SIZE $RANK   # on every node: the same address and size?",
            _REACH,
            _EACH_STEP,
        ],
        confidence="likely",
        hosts=hosts_in(lists),
        evidence=[*first_evidence(lists), *ends[:1]],
        fatal=True,
    )


def _ends_with_nccl(facts: Facts) -> bool:
    """Whether nothing follows NCCL's last line: a program that prints continues."""
    lines = {source.name: source.lines for source in facts.job.sources}
    return any(lines.get(last.source) == last.order for last in facts.job.last_lines)


def _cut_or_stuck(facts: Facts, what: str, ranks: Iterable[int], evidence: list[Evidence]) -> Finding | NotJudged:
    warned = any(notice.level == "WARN" for notice in facts.job.notices)  # a warning says more than where the log ends
    if facts.job.going_on or warned:
        return RULE.undecided(f"{what}: stuck, or the log was cut there", _END)
    return RULE.clue(
        f"{what}{standstill.undecided(facts)}",
        cause="unknown from this log; likely: "
        "the log was cut off there, or the ranks wait for each other because one never started or "
        f"died before, or because the hosts cannot reach each other{suspects(facts)}",
        impact="if it is stuck, the job does not start; NCCL itself waits without a timeout",
        fix=[_WAITING, _REACH, _EACH_STEP],
        confirm="Check whether the log continues: every rank of a healthy job prints 'Init COMPLETE'. If not, pass "
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
        "the log was cut off there, or the ranks are stuck. Usual causes: blocked ports of "
        f"the data network, lost packets (MTU, GID), or ranks with different settings{suspects(facts)}",
        impact="if it is stuck, the job does not start; NCCL itself waits without a timeout",
        fix=[
            _WAITING,
            "Open all ports of the data network between all hosts, with one MTU; test with nccl-tests.",
            _EACH_STEP,
        ],
        confirm="Check whether the log continues: every rank of a healthy job prints 'Connected all rings' or "
        "'Init COMPLETE'.",
        severity="info",
        confidence="possible",
        ranks=ranks_of_paths(paths),
        hosts=hosts_of_paths(paths),
        evidence=cut,
        open_paths=paths,
    )
