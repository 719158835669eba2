"""Ranks that started to initialize a communicator and never finished, without an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nccl_inspect.event.types import NetDevices, P2pCheck
from nccl_inspect.judging import at_end
from nccl_inspect.judging.check import Account, Evidence, Facts, Hit, first_evidence, tell_account
from nccl_inspect.judging.engine import sort_lines
from nccl_inspect.judging.facts import global_ranks, hosts_in, ranks_in
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.model.versions import order
from nccl_inspect.util.wording import count, ranks_word

_STARTS_AT_ONCE = (2, 23)
"""The first release that prints Init START before ranks meet (bootstrapInit), not after (src/init.cc)."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find START without COMPLETE and without an error; only the end of the job proves the log complete."""
    comms = facts.job.communicators
    if facts.job.failed or facts.errors(forced_ends=False) or at_end.node_failed(facts):
        return
    if cut := at_end.connections_at_end(facts):
        if not at_end.is_local_p2p(facts) and not any(comm.completed for comm in comms):
            yield _cut(facts, "connecting", facts.job.paths.ends(), cut, facts.job.paths.hosts())
        return
    if not comms:
        yield from _before_start(facts)
    for comm in comms:
        waiting = set(comm.started) - set(comm.completed)
        if not waiting:
            continue
        ranks = global_ranks(comm, waiting)
        if paths := facts.paths_of(comm):  # it was complete, though a line of it may be lost
            silent = global_ranks(comm, waiting.difference(comm.connected, comm.unconnected, comm.ended))
            if silent and not any(source.damaged_lines for source in facts.job.sources):
                touching = paths.filter_values(("src", "dst"), lambda *ends, silent=silent: not silent.isdisjoint(ends))
                yield Hit(named={"silent": silent, "comm": comm.id}, paths=touching)
            continue
        elsewhere = at_end.absent_elsewhere(facts, comm)
        absent = set() if comm.completed else set(range(comm.nranks)) - set(comm.started)
        named: dict[str, object] = {
            "comm": comm.id,
            "size": count(comm.nranks, "rank"),
            "waiting": ranks if elsewhere else waiting,
            "elsewhere": elsewhere,
            "absent": absent,
            "late": ranks_word(elsewhere) if elsewhere else f"{ranks_word(absent)} of {comm.nranks}",
        }
        if facts.job.ended_by or at_end.is_stuck(facts):
            yield _stuck(facts, comm, named, elsewhere or ranks)
        else:
            evidence = at_end.evidence(facts) or comm.evidence[:2]
            yield _cut(facts, "cut", elsewhere or ranks, evidence, named=named)
        return  # what follows the first stuck communicator waits for it


def tell(facts: Facts, account: Account) -> Hit:
    """Return ranks that never began a communicator in which others wait."""
    hit = tell_account(facts, account)
    return hit.with_fields(
        known=("has a process",) if account.pids else (),
        evidence=[*sort_lines(account.evidence)[:2], *facts.job.ended_by[-2:]],
        open_end=not (facts.job.ended_by or facts.job.failed),
    )


def _stuck(facts: Facts, comm: CommunicatorInfo, named: dict[str, object], ranks: set[int]) -> Hit:
    job, never = facts.job, set(range(comm.nranks)) - set(comm.started)
    state = ""
    if not job.ended_by and len(never) <= len(at_end.idle_processes(facts)):
        state = at_end.describe(facts)  # with more absent ranks, rank-missing describes them
    unnumbered = None in comm.ranks and not named["elsewhere"]
    if unnumbered:  # each of those that wait for some whose logs are elsewhere may be the first one stuck
        stuck = (one for one in job.communicators if not one.completed and not facts.paths_of(one))
        ranks = {rank for one in stuck for rank in global_ranks(one, one.started)}
    return Hit(
        named=named
        | {
            "state": state,
            "missing": "" if named["elsewhere"] or not never else ranks_word(never) + f" of {comm.id}" * unnumbered,
            "suspicion": at_end.suspicion(facts),
            "suspects": at_end.suspects(facts),
            "phases": at_end.phases(facts, comm),
        },
        known=("stuck", *(("ended",) if job.ended_by else ()), *(("releases",) if len(job.nccl_versions) > 1 else ())),
        ranks=ranks,
        hosts=[host.name for host in job.hosts if ranks & set(host.ranks)] if named["elsewhere"] else comm.hosts,
        evidence=[*(at_end.evidence(facts) or comm.evidence[:3]), *job.ended_by[-2:]],
        open_end=not job.ended_by,
    )


def _before_start(facts: Facts) -> Iterator[Hit]:
    """Find processes that initialized their network, where ranks meet before Init START is printed."""
    releases, lists = facts.job.nccl_versions, facts.with_event(NetDevices)
    ends = at_end.ends_after_nccl(facts, facts.job.ended_by)
    starts_late = releases and not any("inferred" in text or order(text) >= _STARTS_AT_ONCE for text in releases)
    if lists and ends and starts_late:
        named = {"unmet": count(len({process for notice in lists for process in notice.processes}), "process")}
        yield Hit(named=named, ranks=(), hosts=hosts_in(lists), evidence=[*first_evidence(lists), *ends[:1]])
        return
    ends_at = {source.name: source.lines for source in facts.job.sources}
    is_last = any(ends_at.get(last.source) == last.order for last in facts.job.last_lines)
    if is_last and not facts.job.paths:  # a program that prints continues
        building = facts.with_event(P2pCheck)
        if lists or building:
            step, lines = ("building", building) if building else ("looking", lists)
            yield _cut(facts, step, ranks_in(building), first_evidence(lines)[:2])


def _cut(
    facts: Facts,
    kind: str,
    ranks: Iterable[int],
    evidence: list[Evidence],
    hosts: Iterable[str | None] | None = None,
    named: dict[str, object] | None = None,
) -> Hit:
    """Return that the log ends while ranks start: a warning says more than where a log ends, as `watch` will."""
    warned = any(notice.level == "WARN" for notice in facts.job.notices)
    is_open = kind != "connecting" and (facts.job.going_on or warned)
    return Hit(
        named={**(named or {}), "suspects": at_end.suspects(facts), "undecided": at_end.list_possible_ends(facts)},
        known=("open", kind, *(("question",) if is_open else ())),
        ranks=ranks,
        hosts=facts.hosts() if hosts is None else hosts,
        evidence=evidence,
        open_paths=facts.job.paths if kind == "connecting" else None,
    )
