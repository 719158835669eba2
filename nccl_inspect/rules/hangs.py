"""Ranks that started and never finished, without an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nccl_inspect.event.types import CollectiveTimeout, NetDevices, P2pCheck
from nccl_inspect.judging import at_end
from nccl_inspect.judging.check import Account, Evidence, Facts, Hit, first_evidence, tell_account
from nccl_inspect.judging.ends import process_ends, silent_workers
from nccl_inspect.judging.engine import sort_lines
from nccl_inspect.judging.evidence import ras
from nccl_inspect.judging.facts import global_ranks, hosts_in, ranks_in
from nccl_inspect.judging.machine_type import gpu_names
from nccl_inspect.judging.statements import is_propagated_error
from nccl_inspect.judging.watchdog import waits, without_output
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.model.statements import usage
from nccl_inspect.model.versions import order
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.wording import count, ranks_word


def rank_missing(facts: Facts) -> Iterator[Hit]:
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
            yield Hit(named=named | {"question": True})
            return  # later communicators wait for the first stuck one
        named |= {
            "state": "" if facts.job.ended_by else at_end.describe(facts),
            "started": len(comm.started),
            "pids": ", ".join(map(str, pids[:8])),
            "phases": at_end.phases(facts, comm),
            "missing": at_end.where_missing(facts),
            "suspects": at_end.suspects(facts),
            "alone": len(comm.started) == 1,
        }
        yield Hit(
            named=named,
            ranks=global_ranks(comm, absent),
            hosts=comm.hosts,
            evidence=[*at_end.evidence(facts), *facts.job.ended_by[:1]],
            open_end=not facts.job.ended_by,
        )
        return


_STARTS_AT_ONCE = (2, 23)
"""The first release that prints Init START before ranks meet (bootstrapInit), not after (src/init.cc)."""


def hang_in_init(facts: Facts) -> Iterator[Hit]:
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


def tell_hang_in_init(facts: Facts, account: Account) -> Hit:
    """Return ranks that never began a communicator in which others wait."""
    hit = tell_account(facts, account)
    return hit.with_fields(
        named={**hit.named, "has a process": account.pids},
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
            "stuck": True,
            "ended": job.ended_by,
            "releases": len(job.nccl_versions) > 1,
        },
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
        named={
            **(named or {}),
            "suspects": at_end.suspects(facts),
            "undecided": at_end.list_possible_ends(facts),
            "open": True,
            kind: True,
            "question": is_open,
        },
        ranks=ranks,
        hosts=facts.hosts() if hosts is None else hosts,
        evidence=evidence,
        open_paths=facts.job.paths if kind == "connecting" else None,
    )


def hang_after_init(facts: Facts) -> Iterator[Hit]:
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
                "clue": True,
            },
            ranks=[rank for rank in comm.ranks if rank is not None],
            hosts=comm.hosts,
            evidence=cut,
            open_paths=job.paths,
        )
    elif open_ones and not job.ended_by:
        yield Hit(named=_connecting(open_ones[0], len(open_ones) - 1) | {"question": True})
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
                "unconnected": open_ones,
                "no row": tables,
                "gpudirect": any(kind.gdr for kind in facts.inter_host_net_paths().kinds),
            },
            ranks=odd or [rank for rank in comm.ranks if rank is not None],
            hosts=comm.hosts,
            evidence=[*at_end.last_of(facts, comm), *ends[:2]],
            confidence="likely" if is_shown else "possible",
        )
    elif comms and has_header:
        yield Hit(named={"header": True})
    elif not job.communicators and has_header:
        last = facts.notices("nccl-tests/test-units")[-1].evidence[-1]
        yield Hit(named={"empty": True}, ranks=(), hosts=facts.hosts(), evidence=[last])


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


_FIRST_WORK = 1
_BY_PCIE = compile_later(r"\b(?:GeForce|Quadro|RTX|TITAN|T4|A10G?|A16|A40|L4|L20|L40S?)\b")


def hang_after_p2p_setup(facts: Facts) -> Iterator[Hit]:
    """Find jobs on one host with only P2P paths that were ended before anything returned, where a line proves it."""
    paths = facts.job.paths
    if not at_end.is_local_p2p(facts):
        return
    if cut := at_end.connections_at_end(facts):
        # Without NVLink, or with a bridge at most, P2P depends on board and settings.
        over_pcie = any(facts.link(kind) == "PCIe" for kind in facts.paths().kinds)
        named = {
            "cut": cut,
            "undecided": at_end.list_possible_ends(facts),
            "over PCIe": over_pcie or any(_BY_PCIE.search(name) for name in gpu_names(facts.job)),
            "steps": "",
        }
        yield Hit([], named, paths.ends(), paths.hosts(), cut, open_paths=paths)
        return
    comms = [
        comm
        for comm in usage.used_communicators(facts.job)
        if len(comm.completed) == comm.nranks > 1 and not comm.ended
    ]
    errors = [error for error in facts.errors(forced_ends=False) if not is_propagated_error(error)]
    is_other = facts.job.failed or any(not isinstance(error.event, CollectiveTimeout) for error in errors)
    if not comms or is_other or any(comm.unconnected for comm in comms) or at_end.is_starting_another(facts):
        return
    # The time-outs of all ranks in the first work of a process group; none if a rank did not arrive.
    first = [wait for wait in waits(facts) if wait.seq <= _FIRST_WORK]
    arrived = {wait.rank if wait.rank is not None else wait.member for wait in first}
    is_first = len(first) == len(waits(facts)) and arrived.issuperset(range(comms[0].nranks))
    stuck = [wait.notice for wait in first] if is_first else []
    silent = [] if process_ends(facts) else at_end.unexplained_ends(facts)
    if stuck or (silent and not waits(facts)):
        comm = comms[0] if stuck else comms[-1]
        tables = [] if stuck else at_end.empty_tables(facts, silent)
        together = ras.same_counts_note(facts)
        named = {
            "number": comm.nranks,
            "first": stuck or tables,
            "phases": at_end.phases(facts, comm),
            "suspects": at_end.suspects(facts),
            "together": together,
            "steps": list(ras.IN_STEP_FIX) if together else "",
            "sure": stuck or tables or at_end.is_timed_out(silent),
        }
        ranks = [rank for rank in comm.ranks if rank is not None]
        lines = [*paths.first_lines()[:2], *first_evidence(stuck[:2]), *tables[-1:], *silent[:1]]
        yield Hit([], named, ranks, comm.hosts, lines)
