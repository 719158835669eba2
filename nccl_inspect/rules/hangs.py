"""Ranks that started and never finished, and calls of collectives that differ, lack a rank, or do not end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from nccl_inspect.artifacts import CYCLE, DIFFERENT, MISSING, NO_PARTNER, PARTLY, UNFINISHED
from nccl_inspect.event.types import CollectiveTimeout, NetDevices, P2pCheck
from nccl_inspect.judging import at_end, check, exceptions, watchdog
from nccl_inspect.judging.actors import actors_of
from nccl_inspect.judging.check import Account, Evidence, Facts, Hit, Notice, value
from nccl_inspect.judging.ends import process_ends, silent_workers
from nccl_inspect.judging.engine import sort_lines
from nccl_inspect.judging.evidence import ras
from nccl_inspect.judging.evidence.ras import answers, make_hit, who
from nccl_inspect.judging.facts import cite_line, global_ranks, hosts_in, hosts_with, ranks_in
from nccl_inspect.judging.life import find_begun
from nccl_inspect.judging.machine_type import gpu_names
from nccl_inspect.judging.progress import table_of
from nccl_inspect.judging.statements import is_propagated_error, rank_prefix
from nccl_inspect.judging.transfers import hosts_by_address
from nccl_inspect.judging.watchdog import Wait
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.model.statements import ages, usage
from nccl_inspect.model.versions import order
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.wording import capitalize, conjugate, count, list_words, ranks_word

if TYPE_CHECKING:
    from nccl_inspect.artifacts.ras import Answer, Member, Mismatch, State
    from nccl_inspect.artifacts.standstill import Part, Standstill


def rank_missing(facts: Facts) -> Iterator[Hit]:
    """Find world communicators that no rank completed: if any rank completed one, all had started it."""
    if facts.job.failed or facts.errors(forced_ends=False) or at_end.node_failed(facts):
        return
    idle = len(actors_of(facts).mute)
    for comm in facts.job.communicators:
        if comm.parent is not None or comm.completed or comm.ended or comm.nranks - len(comm.started) <= idle:
            continue  # processes without a communicator yet may be the absent ranks
        absent, mute = comm.absent, silent_workers(facts)
        is_here = facts.job.rank_space == "global" and not global_ranks(comm, absent).isdisjoint(facts.job.ranks_seen)
        if is_here or facts.paths_of(comm):
            continue  # they have lines, in other communicators
        pids = mute if len(mute) == len(absent) else []
        is_whole = len(comm.hosts) > 1 and {begin.process for begin in comm.begins} <= find_begun(facts)
        named: dict[str, object] = {"absent": absent, "size": comm.nranks, "one": len(absent) == 1}
        if not (facts.job.ended_by and (is_whole or pids)) and not at_end.is_stuck(facts):
            yield Hit(named=named | {"question": True})
            return  # later communicators wait for the first stuck one
        named |= {"state": "" if facts.job.ended_by else at_end.describe(facts), "started": len(comm.started)}
        named |= {"phases": at_end.phases(facts, comm), "missing": at_end.where_missing(facts)}
        named |= {"pids": ", ".join(map(str, pids[:8])), "alone": len(comm.started) == 1}
        named |= {"signalled": pids and facts.notices("torch/agent-signalled")}
        ranks, lines = global_ranks(comm, absent), [*at_end.evidence(facts), *facts.job.ended_by[:1]]
        yield Hit([], named, ranks, comm.hosts, lines, open_end=not facts.job.ended_by)
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
        waiting = comm.pending
        if not waiting:
            continue
        ranks = global_ranks(comm, waiting)
        if paths := facts.paths_of(comm):  # it was complete, though a line of it may be lost
            silent = global_ranks(comm, waiting.difference(comm.connected, comm.unconnected, comm.ended))
            if silent and not any(source.damaged_lines for source in facts.job.sources):
                touching = paths.filter_values(("src", "dst"), lambda *ends, silent=silent: not silent.isdisjoint(ends))
                yield Hit(named={"silent": silent, "comm": comm.id}, paths=touching)
            continue
        absent = set() if comm.completed else comm.absent
        named: dict[str, object] = {"comm": comm.id, "size": count(comm.nranks, "rank"), "waiting": waiting}
        named |= {"absent": absent, "late": f"{ranks_word(absent)} of {comm.nranks}"}
        if facts.job.ended_by or at_end.is_stuck(facts):
            yield _stuck(facts, comm, named, ranks)
        else:
            evidence = at_end.evidence(facts) or comm.evidence[:2]
            yield _cut(facts, "cut", ranks, evidence, comm.hosts if comm.parent else None, named)
        return  # what follows the first stuck communicator waits for it


def tell_hang_in_init(facts: Facts, account: Account) -> Hit:
    """Return ranks that never began a communicator in which others wait."""
    hit = check.tell_account(facts, account)
    return hit.with_fields(
        named={**hit.named, "has a process": account.pids},
        evidence=[*sort_lines(account.evidence)[:2], *facts.job.ended_by[-2:]],
        open_end=not (facts.job.ended_by or facts.job.failed),
    )


def _stuck(facts: Facts, comm: CommunicatorInfo, named: dict[str, object], ranks: set[int]) -> Hit:
    job, never = facts.job, comm.absent
    known: dict[str, object] = {"stuck": True, "ended": job.ended_by, "releases": len(job.nccl_versions) > 1}
    known |= {"missing": ranks_word(never) + f" of {comm.id}" * (None in comm.ranks) if never else ""}
    if not job.ended_by and len(never) <= len(actors_of(facts).mute):
        known["state"] = at_end.describe(facts)  # with more absent ranks, rank-missing describes them
    lines = [*(at_end.evidence(facts) or comm.evidence[:3]), *job.ended_by[-2:]]
    known |= named | {"phases": at_end.phases(facts, comm)}
    return Hit([], known, ranks, comm.hosts, lines, open_end=not job.ended_by)


def _before_start(facts: Facts) -> Iterator[Hit]:
    """Find processes that initialized their network, where ranks meet before Init START is printed."""
    releases, lists = facts.job.nccl_versions, facts.with_event(NetDevices)
    ends = at_end.ends_after_nccl(facts, facts.job.ended_by)
    starts_late = releases and not any("inferred" in text or order(text) >= _STARTS_AT_ONCE for text in releases)
    if lists and ends and starts_late:
        named = {"unmet": count(len({process for notice in lists for process in notice.processes}), "process")}
        yield Hit(named=named, ranks=(), hosts=hosts_in(lists), evidence=[*check.first_evidence(lists), *ends[:1]])
        return
    ends_at = {source.name: source.lines for source in facts.job.sources}
    is_last = any(ends_at.get(last.source) == last.order for last in facts.job.last_lines)
    if is_last and not facts.job.paths:  # a program that prints continues
        building = facts.with_event(P2pCheck)
        if lists or building:
            step, lines = ("building", building) if building else ("looking", lists)
            yield _cut(facts, step, ranks_in(building), check.first_evidence(lines)[:2])


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
    known, where = (
        {**(named or {}), "open": True, kind: True, "question": is_open},
        facts.hosts() if hosts is None else hosts,
    )
    return Hit([], known, ranks, where, evidence, open_paths=facts.job.paths if kind == "connecting" else None)


def hang_after_init(facts: Facts) -> Iterator[Hit]:
    """Find communicators that every rank completed and none ended, in logs that are provably complete."""
    job = facts.job
    if job.failed or facts.errors(forced_ends=False) or at_end.node_failed(facts):
        return
    comms = _working_communicators(facts)
    open_ones = sorted((comm for comm in comms if comm.unconnected), key=lambda comm: not _odd_ranks(facts, comm))
    silent = [] if process_ends(facts) else at_end.unexplained_ends(facts)
    has_header = not job.ended_by and at_end.ends_with_empty_table(facts)
    if (cut := at_end.connections_at_end(facts)) and comms and not at_end.is_local_p2p(facts):
        comm = comms[0]
        known = {**(_connecting(comm) if comm.unconnected else {}), "clue": True}
        yield Hit([], known, comm.known_ranks, comm.hosts, cut, open_paths=job.paths)
    elif open_ones and not job.ended_by:
        yield Hit(named=_connecting(open_ones[0], len(open_ones) - 1) | {"question": True})
    elif open_ones or (comms and silent and job.paths and not at_end.is_starting_another(facts)):
        comm = open_ones[0] if open_ones else comms[-1]
        tables = [] if open_ones else at_end.empty_tables(facts, silent)
        ends = job.ended_by if open_ones else [*tables[-1:], *silent]
        odd = _odd_ranks(facts, comm)
        unseen = set() if odd else watchdog.without_output(facts)
        is_shown = (tables or comm.unconnected or at_end.is_timed_out(ends)) and not unseen
        gdr = any(kind.gdr for kind in facts.inter_host_net_paths().kinds)
        known = {"comm": comm.id, "size": count(comm.nranks, "rank"), "phases": at_end.phases(facts, comm)}
        known |= {"unseen": unseen, "unconnected": open_ones, "no row": tables, "gpudirect": gdr}
        ranks, lines = odd or comm.known_ranks, [*at_end.last_of(facts, comm), *ends[:2]]
        yield Hit([], known, ranks, comm.hosts, lines, confidence="likely" if is_shown else "possible")
    elif comms and has_header:
        yield Hit(named={"header": True}, paths=job.paths)
    elif not job.communicators and has_header:
        yield Hit([], {"empty": True}, (), facts.hosts(), [facts.notices("nccl-tests/test-units")[-1].evidence[-1]])


def _working_communicators(facts: Facts) -> list[CommunicatorInfo]:
    used = usage.used_communicators(facts.job)
    return [comm for comm in used if len(comm.completed) == comm.nranks > 1 and not comm.ended]


def _odd_ranks(facts: Facts, comm: CommunicatorInfo) -> set[int]:
    return at_end.ranks_that_differ(facts) & comm.known_ranks


def _connecting(comm: CommunicatorInfo, others: int = 0) -> dict[str, object]:
    """Return which ranks began to connect, by their ranks in the communicator where the log does not show others."""
    idle = set(range(comm.nranks)) - set(comm.unconnected)
    busy = global_ranks(comm, comm.unconnected) or set(comm.unconnected)
    return {"comm": comm.id, "busy": busy, "idle": global_ranks(comm, idle) or idle, "others": others}


_BY_PCIE = compile_later(r"\b(?:GeForce|Quadro|RTX|TITAN|T4|A10G?|A16|A40|L4|L20|L40S?)\b")


def hang_after_p2p_setup(facts: Facts) -> Iterator[Hit]:
    """Find jobs on one host with only P2P paths that were ended before anything returned, where a line proves it."""
    paths = facts.job.paths
    if not at_end.is_local_p2p(facts):
        return
    if cut := at_end.connections_at_end(facts):
        # Without NVLink, or with a bridge at most, P2P depends on board and settings.
        over_pcie = any(facts.link(kind) == "PCIe" for kind in facts.paths().kinds)
        over_pcie |= any(_BY_PCIE.search(name) for name in gpu_names(facts.job))
        named = {"cut": cut, "over PCIe": over_pcie, "steps": ""}
        yield Hit([], named, paths.ends(), paths.hosts(), cut, open_paths=paths)
        return
    comms = _working_communicators(facts)
    errors = [error for error in facts.errors(forced_ends=False) if not is_propagated_error(error)]
    is_other = facts.job.failed or any(not isinstance(error.event, CollectiveTimeout) for error in errors)
    if not comms or is_other or any(comm.unconnected for comm in comms) or at_end.is_starting_another(facts):
        return
    # The time-outs of all ranks in the first work of a process group; none if a rank did not arrive.
    first = [wait for wait in watchdog.waits(facts) if wait.seq <= 1]
    arrived = {wait.rank if wait.rank is not None else wait.member for wait in first}
    is_first = len(first) == len(watchdog.waits(facts)) and arrived.issuperset(range(comms[0].nranks))
    stuck = [wait.notice for wait in first] if is_first else []
    silent = [] if process_ends(facts) else at_end.unexplained_ends(facts)
    if stuck or (silent and not watchdog.waits(facts)):
        comm = comms[0] if stuck else comms[-1]
        tables = [] if stuck else at_end.empty_tables(facts, silent)
        answer, counts = ras.same_counts(facts)
        named = {"RAS": answer, "counts": counts, "number": comm.nranks, "phases": at_end.phases(facts, comm)}
        named |= {"steps": list(ras.IN_STEP_FIX) if counts else "", "first": stuck or tables}
        named |= {"sure": stuck or tables or at_end.is_timed_out(silent)}
        lines = [*paths.first_lines()[:2], *check.first_evidence(stuck[:2]), *tables[-1:], *silent[:1]]
        yield Hit([], named, global_ranks(comm, range(comm.nranks)), comm.hosts, lines)


_FINGERPRINT = compile_later(
    r"Rank (\d+) is running collective: CollectiveFingerPrint"
    r"\((?:SequenceNumber=(\d+), )?OpType=(\w+)(?:, TensorShape=(\[[^\]]*\]))?"
)
"""What PyTorch compares, without the types, which add little."""


def collective_mismatch(facts: Facts) -> Iterator[Hit]:
    """Find messages that NCCL reports as mismatched, and different calls of one number: by dumps or time-outs."""
    recorded = watchdog.standstills(facts, DIFFERENT)
    for still in recorded:
        yield _differ(still, watchdog.ranks_of([*still.culprits, *still.waiting]), _lines_of_both(still))
    if recorded:
        return
    sizes = facts.with_role("size-mismatch")
    stated = [notice for notice in facts.errors_of_rule("collective-mismatch") if notice not in sizes]
    table = table_of(facts)
    if not (sizes or stated):
        for still in table.different[:1]:
            is_sure = still.group.name and len(still.culprits) != len(still.waiting)
            sure = "certain" if is_sure else "likely"
            yield _differ(still, set(still.pending), table.lines_of(still)).with_fields(confidence=sure)
        return
    notices = [*stated, *sizes]
    ranks = ranks_in(notices)
    ranks |= {int(match[1]) for notice in notices for match in _FINGERPRINT.finditer(notice.message)}
    numbers, made = _pytorch_calls(notices)
    calls = "; ".join(f"{call} on {ranks_word(some)}" for call, some in sorted(made.items()))
    if calls and len(numbers) == 1 and None not in numbers:
        calls = f"call {numbers.pop()} is {calls}"
    told = {name: next((own for one in stated if (own := value(one, name))), "") for name in ("what", "how")}
    told |= {"calls": calls, "stated": "" if calls else notices[0].message.partition(". If you believe")[0]}
    outliers = _find_outlier(made)
    by_address = hosts_by_address(facts) if sizes else {}
    peers = (str(value(notice, "peer")).partition("<")[0] for notice in sizes)
    senders = {by_address[peer] for peer in peers if peer in by_address}
    named: dict[str, object] = {**told, "outliers": outliers, "sizes": not stated, "senders": senders}
    sure = "certain" if stated else "likely"
    yield Hit([], named, outliers or ranks, hosts_in(notices), check.first_evidence(notices), confidence=sure)


def _differ(still: Standstill, ranks: set[int], lines: list[Evidence]) -> Hit:
    """Return ranks that made different calls under one number."""
    parts, outliers = [*still.culprits, *still.waiting], watchdog.ranks_of(still.culprits) if still.waiting else set()
    known = {"recorded": watchdog.work(None, still.group, still.seq), "calls": watchdog.by_call(parts)}
    known |= {"places": watchdog.list_frames(parts), "peers": still.group.label if still.peers else ""}
    usual = {"outliers": outliers, "usual": watchdog.ranks_of(still.waiting)}
    return Hit([], {**known, **usual}, outliers or ranks, evidence=lines)


def _lines_of_both(still: Standstill, most: int = 2) -> list[Evidence]:
    """Return lines of those that hold the others up, and of those that wait."""
    culprits = watchdog.lines(still.culprits, most)
    return [*culprits, *watchdog.lines(still.waiting, 2)]


def _pytorch_calls(notices: list[Notice]) -> tuple[set[str | None], dict[str, set[int]]]:
    """Return the numbers of the calls that differ according to PyTorch, and each call with its ranks."""
    fingerprints = {match.groups() for notice in notices for match in _FINGERPRINT.finditer(notice.message)}
    by_operation = group_sets((operation, int(rank)) for rank, _, operation, _ in fingerprints)
    by_shape = group_sets((f"{operation} of shape {shape}", int(rank)) for rank, _, operation, shape in fingerprints)
    made = next((calls for calls in (by_operation, by_shape) if len(calls) > 1), {})
    return {number for _, number, _, _ in fingerprints}, made


def _find_outlier(by_call: Mapping[str, set[int]]) -> set[int]:
    """Return the only rank whose call differs from that of two or more others; of two ranks, either may be wrong."""
    few, *others = sorted(by_call.values(), key=len) or [set()]
    return few if len(others) == 1 and len(few) == 1 < len(others[0]) else set()


def standstill(facts: Facts, *, kinds: Sequence[str]) -> Iterator[Hit]:
    """Find standstills of these kinds in the dumps of all ranks."""
    if UNFINISHED in kinds and watchdog.is_running(facts):
        yield Hit(named={"running": True})
    for still in watchdog.standstills(facts, *kinds):
        culprits, waiting = watchdog.ranks_of(still.culprits), watchdog.ranks_of(still.waiting)
        is_stuck = still.kind in (PARTLY, UNFINISHED)  # all ranks made the call, and it is still open
        call = (still.culprits if is_stuck or not waiting else still.waiting)[0].call
        missing = culprits | set(still.silent) if still.kind == NO_PARTNER else culprits or set(still.unknown)
        early = watchdog.dumped_before(still)
        yield Hit(
            named={
                "culprits": culprits,
                "waiting": waiting,
                "missing": missing,
                "one": len(missing) == 1,
                "silent": set(still.silent),
                "call": watchdog.work(call, still.group, still.seq),
                "operation": still.operation,
                "group": still.group.label,
                "pair": call and call.is_p2p,
                "partly": still.kind == PARTLY,
                "last": "; ".join(map(_last_call, still.culprits[:3])),
                "older": set(still.older),
                "one older": len(still.older) == 1,
                "overwritten": set(still.overwritten),
                "early": f"{early:.0f} s" if early else "",
                "stale": still.older or early,
                "chain": watchdog.chain(facts, still),
                "place": min((part.call.frame for part in still.culprits if part.call and part.call.frame), default=""),
                "places": watchdog.list_frames(still.culprits),
                "waiting_at": watchdog.list_frames(still.waiting),
                "number": call.nth if call and still.made is not None else None,
                "others": culprits or set(still.silent),
                "made": still.made or "none",
                "waits": watchdog.links_of(still),
                "odd": capitalize(ranks_word(set(still.odd))) if still.odd else "",
            },
            ranks=set(still.odd) or missing,
            evidence=list(watchdog.lines(still.culprits, 4))
            if still.kind == CYCLE
            else _lines_of_both(still, 3 if is_stuck else 2),
            confidence=watchdog.confidence(still) if still.kind in (MISSING, NO_PARTNER) else None,
        )


def _last_call(part: Part) -> str:
    if part.call is None:
        return f"rank {part.rank} has made no call at all"
    where = f" from {part.call.frame}" if part.call.frame else ""
    called = watchdog.describe_call(part.call)
    return f"the last call of rank {part.rank} was {called}{where}, which is complete"


def straggler(facts: Facts) -> Iterator[Hit]:
    """Find who is late, by how long the calls took on each rank, if PyTorch measured it."""
    dumps = watchdog.dumps_of(facts)
    if len(dumps) < 2:
        return
    from nccl_inspect.artifacts import stragglers  # most logs have no dumps

    # If there are more, the time is lost elsewhere.
    for late in stragglers.find_stragglers(dumps)[:3]:
        others, label = set(late.group.ranks) - {late.rank}, late.group.label
        named = {"rank": late.rank, "late": f"{late.late} of {late.compared}", "group": label, "others": others}
        named |= {"who": f"the other {len(others)} ranks" if len(others) > 1 else ranks_word(others)}
        named |= {"share": f"{late.share:.0%}", "gap": f"{late.gap_ms:.0f} ms"}
        took = (f"work {call.seq} of group {label} took {call.milliseconds:.1f} ms" for call in late.calls)
        texts = zip(late.calls, took, strict=True)
        lines = [Evidence(call.dump, call.order, f"rank {call.rank}: {text}") for call, text in texts]
        yield Hit([], named, {late.rank}, evidence=lines)


_FEW = 3  # ranks that somebody looks at one after the other


def ranks_out_of_step(facts: Facts) -> Iterator[Hit]:
    """Find the mismatches of one communicator in the newest answer that has any, and who waits for nobody by them."""
    differing = [answer for answer in answers(facts) if answer.mismatches]
    if not differing:
        return
    whole = ([answer for answer in differing if answer.sizes] or differing)[-1]
    ranks, held, proved = actors_of(facts).ranks_by_pid, watchdog.waiting(facts), watchdog.blocking_ranks(facts)
    # All that are behind where each of them is ahead elsewhere.
    late = whole.last_to_come() or [member for mismatch in whole.mismatches for member in mismatch.behind]
    late = [member for member in late if ranks.get(member.pid or -1) not in held]
    late = [member for member in late if not proved or ranks.get(member.pid or -1) in {*proved, None}]
    behind = ras.ranks_among(facts, late)
    lagging = _select_mismatches(differing[-1], late)
    if not lagging:
        return  # the dumps show that these wait for others
    # They may wait for ranks in communicators in which all counts are equal: then one of these is at fault.
    pids = [member.pid for member in late if member.pid and not proved]
    beside = [other for pid in pids for other in whole.ranks_in_step(pid)]
    in_step = ras.ranks_among(facts, beside) - behind - held
    is_waiting = bool(behind) and not proved and behind <= watchdog.waiting_ranks(facts)
    is_either = bool(in_step) and len(behind | in_step) <= _FEW
    counts, answer = [_counts(mismatch, ranks) for mismatch in lagging], differing[-1]
    named = {"counts": "; ".join(counts[:3]), "comm": lagging[0].comm_id, "waits": is_waiting}
    named |= {"behind": list_words(dict.fromkeys(who(member, ranks) for member in late), limit=4)}
    named |= {"mixed": len(lagging) > 1 and all(mismatch.behind != lagging[0].behind for mismatch in lagging[1:])}
    named |= {"step": in_step if is_either else ""}
    texts = zip((one.comm_id for one in lagging), counts, strict=True)
    lines = [Evidence(answer.name, answer.lines.get(id, 1), f"communicator {id}: launched {own}") for id, own in texts]
    hit = make_hit(facts, named, behind | in_step if is_either else behind, lines)
    yield hit.with_fields(confidence="possible") if is_either or is_waiting else hit


def _select_mismatches(answer: Answer, late: list[Member]) -> list[Mismatch]:
    """Return the mismatches of the communicator in which most of these are behind, the largest first."""
    pids = {member.pid for member in late}
    late_ones = (one for one in answer.mismatches if any(member in late or member.pid in pids for member in one.behind))
    by_comm = group_values((mismatch.comm_id, mismatch) for mismatch in late_ones)
    most = max(reversed(by_comm), key=lambda comm_id: len(by_comm[comm_id][0].behind), default="")
    return by_comm.get(most, [])


def _counts(mismatch: Mismatch, ranks: dict[int, int]) -> str:
    by_count = group_values((member.launched, member) for member in mismatch.members)
    counts = []
    for number, members in sorted(by_count.items()):
        known = {ranks[member.pid] for member in members if member.pid in ranks}
        unknown = [who(member, ranks) for member in members if member.pid not in ranks]
        counts.append(f"{number} on {list_words([*([ranks_word(known)] if known else []), *unknown], limit=3)}")
    if mismatch.usual is not None and mismatch.usual not in by_count:
        counts.append(f"{mismatch.usual} on the others")
    return f"{mismatch.operation} {list_words(counts, limit=3)}"


def process_unresponsive(facts: Facts) -> Iterator[Hit]:
    """Find the processes that RAS lists as missing or dead."""
    if not (newest := ras.find_lost(facts)):
        return
    known, ranks = actors_of(facts).ranks_by_pid, ras.ranks_among(facts, (entry for _, entry in newest.values()))
    is_known, is_dead = len(ranks) == len(newest), any(entry.is_dead for _, entry in newest.values())
    places = [f"pid {pid} on {entry.host}" for pid, (_, entry) in newest.items()]
    alive = list(_alive(facts, {known[pid]: name for pid, (name, _) in newest.items() if pid in known}))
    lines = []
    for place, (name, entry) in enumerate(newest.values(), 1):  # JSON has one line, whose processes stay in their order
        where = f"rank {entry.rank} of communicator {entry.comm_id}: " if entry.rank is not None else ""
        text = f"{where}process {entry.pid} on {entry.host}: {'considered dead' if entry.is_dead else 'no answer'}"
        lines.append(Evidence(name, entry.line, text, order=max(entry.line, place)))
    silent = ranks_word(ranks) if is_known else list_words(places)
    named = {"silent": silent, "number": count(len(newest), "process"), "pid": next(iter(newest)), "dead": is_dead}
    named |= {"alive": "".join(words for words, _ in alive)}
    hosts = hosts_with(facts.job, ranks) or {entry.host for _, entry in newest.values()}
    sure = "possible" if alive else "certain" if is_dead else "likely"
    shown = [*(line for _, line in alive), *lines]
    yield Hit([], named, ranks if is_known else (), hosts, shown, confidence=sure)


def _alive(facts: Facts, answer_of: Mapping[int, str]) -> Iterator[tuple[str, Evidence]]:
    """Yield evidence against it: a rank that made a call after the answer was written was alive then."""
    dumps = {dump.rank: dump for dump in watchdog.dumps_of(facts)}
    for rank, name in answer_of.items():
        dump, written = dumps.get(rank), ages.write_time(name)
        if dump is None or dump.last is None or written is None:
            continue
        later = dump.active_ns / 1e9 - written
        if later > watchdog.CLOCKS:
            words = f". But its dump contradicts that: rank {rank} was active {later:.0f} s after this answer"
            text = f"rank {rank}: {watchdog.describe_call(dump.last)}, {dump.last.state}"
            yield words, Evidence(dump.name, dump.last.order, text)


_REMOTE_ERROR = "Remote process error"  # reported by a rank that lost its peer
_LEAVING = ("NOCOMM", "FINALIZE")
_STATES = {
    "NOCOMM": "no longer in it (ncclCommDestroy, ncclCommAbort)",
    "FINALIZE": "in ncclCommFinalize or ncclCommDestroy",
    "ABORT": "aborted (ncclCommAbort)",
    "INIT": "still initializing",
    "RUNNING": "in use",
}


def ranks_in_error(facts: Facts) -> Iterator[Hit]:
    """Find the errors that ranks report, first those that do not blame a peer, else their different states."""
    if answer := next((answer for answer in reversed(answers(facts)) if answer.errors), None):
        own = [state for state in answer.errors if state.what != _REMOTE_ERROR]
        remote = [state for state in answer.errors if state.what == _REMOTE_ERROR]
        blamed, shown = _ranks_in_state(facts, own), own or answer.errors
        reports = (
            f"{_who(facts, state)} {conjugate(state.count, 'report')} '{state.what}'"
            + " during initialization" * (state.stage[:4] == "Init")
            for state in shown[:3]
        )
        named = {"errors": "; ".join(reports), "comm": shown[0].comm_id, "blamed": blamed, "one": len(blamed) == 1}
        lines = [_line_of_state(facts, answer, state) for state in [*own, *remote][:4]]
        yield Hit([], named, blamed or None, evidence=lines)
        return
    for answer in reversed(answers(facts)):
        states = [state for state in answer.states if state.what in _STATES]
        first = [state for state in states if state.comm_id == states[0].comm_id]
        odd = [state for state in first if state.what in _LEAVING] or [state for state in first if state.what == "INIT"]
        if odd and len(first) > 1:  # a rank that aborted it had waited for others before
            is_are = (("is" if state.count == 1 else "are", state) for state in first[:4])
            shown_states = "; ".join(f"{_who(facts, state)} {be} {_STATES[state.what]}" for be, state in is_are)
            behind = _ranks_in_state(facts, odd)
            named = {"states": shown_states, "comm": first[0].comm_id, "behind": behind}
            yield make_hit(facts, named, behind, [_line_of_state(facts, answer, state) for state in first])
            return


def _ranks_in_state(facts: Facts, states: Iterable[State]) -> set[int]:
    """Return the ranks of the job; those of the communicator if the process is not in the log."""
    ranks = actors_of(facts).ranks_by_pid
    return {ranks.get(member.pid or -1, member.rank) for state in states for member in state.members}


def _who(facts: Facts, state: State) -> str:
    return ranks_word(_ranks_in_state(facts, [state])) if state.members else count(state.count, "rank")


def _line_of_state(facts: Facts, answer: Answer, state: State) -> Evidence:
    where = list_words([f"pid {member.pid} on {member.host}" for member in state.members if member.pid], limit=2)
    stage = f"{state.stage.lower()} error: " if state.stage else ""
    text = f"communicator {state.comm_id}: {_who(facts, state)}: {stage}{state.what}{f' ({where})' if where else ''}"
    return Evidence(answer.name, state.line, text)


def watchdog_timeout(facts: Facts) -> Iterator[Hit]:
    """Find the process group that timed out first; the story decides for whom its ranks waited."""
    if watchdog.waits(facts):
        yield _find_timeout(facts)
        return
    # torchrun keeps its store: a rank that it started again, and that has not called anything, finds an old signal.
    idle = [one.notice for one in watchdog.statuses(facts) if one.enqueued == -1]
    old = {id(notice) for notice in idle if exceptions.is_above_communicators(facts, notice)}
    signals = [one for one in facts.with_role("watchdog-dump") if "timeout" in one.message and id(one) not in old]
    if signals:  # only the dump signals on other ranks report it
        own = [notice for notice in signals if value(notice, "__self") is not None]
        origins = {value(notice, "origin_rank") for notice in signals if notice not in own} - {None}
        stated = ((notice, value(notice, "global_rank")) for notice in signals)
        named = [(notice, rank_prefix(notice) if rank is None else rank) for notice, rank in stated]
        origins |= {rank for notice, rank in named if notice in own and rank is not None}
        known = {"origins": origins, "reporters": {rank for _, rank in named if rank is not None}, "reported": True}
        yield Hit([], known, origins, (), check.first_evidence(signals))
    elif not (facts.errors() or exceptions.exceptions_of(facts).traces):
        ended = facts.notices("torch/process-terminating")  # all that is left of it
        if any(not exceptions.is_over_below(facts, line) for notice in ended for line in notice.evidence):
            who = ranks_word(ranks) if (ranks := ranks_in(ended)) else "a rank"
            yield Hit(ended, {"ended": who}, evidence=check.first_evidence(ended))


def tell_watchdog_timeout(facts: Facts, account: Account) -> Hit:
    """Return the ranks for which, by what all ranks say, the others waited."""
    return _find_timeout(facts, account) if watchdog.waits(facts) else check.tell_account(facts, account)


def _find_timeout(facts: Facts, account: Account | None = None) -> Hit:
    """Return who waited in which call of the group that timed out first, and who held them up by the story."""
    everything = watchdog.by_time(watchdog.waits(facts))
    group = everything[0].group
    own = [wait for wait in everything if wait.group == group]
    late = watchdog.latecomers(own)
    own = [wait for wait in own if wait not in late]
    comm = watchdog.communicator_of_wait(facts, own)
    waiting = {wait.rank for wait in own if wait.rank is not None}
    of_group = f" of process group {group}" if group is not None else ""
    in_comm = f", communicator {comm.id} with {comm.nranks} ranks" if comm else ""
    ranks = set(account.ranks) if account else watchdog.blocking_ranks(facts)
    who = account.who if account else ranks_word(ranks) if ranks else ""
    told = account.words if account else ""
    alone = comm.known_ranks if comm and ranks and not account else set[int]()
    alone -= watchdog.waiting_ranks(facts) | {wait.rank for wait in everything if wait.rank is not None}
    others = [name for name in dict.fromkeys(wait.group for wait in everything) if name not in (group, None)]
    labels = {name: name.partition("(")[2].rstrip(")") or name for name in others if name}
    others = [name for name, label in labels.items() if name not in told and f"group {label}" not in told]
    ended = exceptions.exceptions_of(facts).of_threads
    return Hit(
        named={
            "timeout": watchdog.wait_words(own, of_group + in_comm),
            "who": who,
            "told_first": told.partition(",")[0] if not who else "",
            "by_all": told,
            "proved": ranks if not account else set(),
            "alone": alone if alone != ranks and len(alone) <= len(waiting) else set(),
            "thread": f"{ended[0].text} ({cite_line(ended[0].line)})" if ended else "",
            "others": others,
            "groups": list(filter(None, others)),
            **({} if account or ranks else _find_absent(own, waiting, comm)),
            "began": account and account.kind == "call-unfinished",
            "cut off": account and account.kind == "cut-off",
            "spread": len(facts.hosts()) > 1,
            "grouped": len(facts.job.communicators) > 1,
            "others several": len(others) > 1,
        },
        ranks=ranks or waiting,
        explains=facts.errors_of_rule("watchdog-timeout"),  # the desync report
        evidence=[
            *check.first_evidence([wait.notice for wait in own][: 2 if who else 3]),
            *(account.evidence[:2] if account else ()),
        ],
        confidence=account.confidence if account and ranks else "certain",
    )


def _find_absent(own: list[Wait], waiting: set[int], comm: CommunicatorInfo | None) -> dict[str, object]:
    """Return which ranks of the group did not time out, without a guess at one of them."""
    members = comm.known_ranks if comm else set[int]()
    if members and members == waiting:
        return {"all": True}
    if absent := members - waiting if waiting else None:
        return {"absent": absent}
    numbers = {wait.member for wait in own if wait.member is not None}
    few = set(range(max(numbers, default=0))) - numbers
    return {"few": capitalize(ranks_word(few)) if few and len(few) < len(numbers) else ""}
