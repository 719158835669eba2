"""Which ranks wait for which at the end of a log: deduced from how far each rank got, as no line names the culprit.

A log that was cut during a healthy start looks much like a hang. Two signs distinguish them. First, ranks without any
line while all others reached the point where NCCL waits for every rank: a healthy job has lines of all its processes by
then. Second, time: a watcher of the log, or timestamps that show a rank silent for long while others continued.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import methodcaller

from nccl_inspect.event import types as events
from nccl_inspect.judging.actors import actors_of
from nccl_inspect.judging.ends import since_start, terminations
from nccl_inspect.judging.facts import RANKS, Facts, as_shell, global_ranks, once
from nccl_inspect.judging.life import find_begun, last_signs, successes, worked_last
from nccl_inspect.judging.siblings import AGREEMENTS, owners, ranks_without, with_own_ranks
from nccl_inspect.judging.watchdog import who_waits
from nccl_inspect.model.evidence import Evidence, positions_in
from nccl_inspect.model.inventory import LastLine, Waiting
from nccl_inspect.model.job import CommunicatorInfo, Job, Selection, Setting
from nccl_inspect.model.paths.path import SIDES
from nccl_inspect.model.statements import job_failure, usage
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.times import are_in_order, moment
from nccl_inspect.util.wording import count, is_or_are, list_words, ranks_word

_INITIALISATION, _CONNECTIONS = "initialisation", "connections"
_STAGES = {_INITIALISATION: "initialization", _CONNECTIONS: "connections"}
_LONG = 30.0  # seconds: no rank of a healthy job lags that much within one step of the initialization
_LOST, _ONE_IN = 2, 8  # lines of paths or ranks that a collector may have lost: two, or one in eight
_FEWEST = 2  # ranks that wait at the same point: a single one may be the only rank with a log
_GAVE_UP = compile_later(r"(?i)\btime(?:d )?-?out\b")
_LIMIT = compile_later(r"(?i)TIME LIMIT|walltime|RUNLIMIT|time limit for job execution")


@once
def waiting_ranks(facts: Facts) -> Waiting | None:
    """Return the ranks that wait at the end of the log; None if none do, or an error explains why they do."""
    if facts.job.failed or facts.errors(forced_ends=False) or node_failed(facts):
        return None
    comms = facts.job.communicators
    comm = next((comm for comm in comms if _is_open(facts, comm)), None)  # later ones wait for it
    stage, missing = _INITIALISATION, set[int]()
    if comm is not None:
        waiting = set(comm.completed or comm.started)
        silent, missing = (comm.pending, set()) if comm.completed else (set(), comm.absent)
    else:
        unconnected = (comm for comm in comms if comm.unconnected and len(comm.completed) == comm.nranks)
        connecting = unconnected if connections_at_end(facts) else iter(())
        comm, stage = next((comm for comm in connecting if not comm.ended), None), _CONNECTIONS
        if comm is None:
            return None
        waiting = set(comm.unconnected)
        silent = set(range(comm.nranks)) - waiting
    ranks = ranks_of(comm, waiting)
    last = max(_lines_of(facts, ranks), key=lambda line: (line.source, line.order), default=None)
    return Waiting(
        communicator=comm.id,
        nranks=comm.nranks,
        missing=ranks_of(comm, missing),
        silent=ranks_of(comm, silent),
        waiting=ranks,
        stage=stage,
        since=last.evidence if last else None,
        time=last.time if last else None,
        age=facts.job.quiet,
        cut=False if facts.job.ended_by else None,
    )


@once
def is_stuck(facts: Facts) -> bool:
    """Return whether these ranks are stuck, as far as a log that may have been cut can show."""
    wait = waiting_ranks(facts)
    job = facts.job
    if wait is None or job.going_on or job.ended_by:
        return False
    if job.quiet is not None:
        return True
    if job.excerpt or _is_damaged(job):
        return False
    return _never_came(facts, wait) or _lags(facts, wait)


def is_at_the_end(facts: Facts) -> bool:
    """Return whether the log ends where ranks wait in a communicator: their processes began no other one afterwards.

    A torn or missing line may be the one that shows that they got further.
    """
    wait, job = waiting_ranks(facts), facts.job
    if wait is None or job.going_on or _is_damaged(job):
        return False
    began = ((begin, comm.id) for comm in job.communicators for begin in comm.begins)
    last = {begin.process: comm for begin, comm in sorted(began, key=lambda entry: entry[0].order)}
    waiting = [comm for comm in job.communicators if comm.id == wait.communicator or _is_open(facts, comm)]
    for comm in waiting:  # the processes that wait in it: those that completed it, else all that began it
        members = set(comm.unconnected or comm.completed or comm.started)
        if {last[begin.process] for begin in comm.begins if begin.member in members} == {comm.id}:
            return True
    return False


def _is_damaged(job: Job) -> bool:
    """Return whether lines are torn, or were not read."""
    return job.partial or any(source.damaged_lines or source.problem for source in job.sources)


def _is_open(facts: Facts, comm: CommunicatorInfo) -> bool:
    """Return whether ranks began a communicator that they never completed, as far as the log shows."""
    return bool(comm.pending) and not (comm.ended or facts.paths_of(comm))


def ranks_of(comm: CommunicatorInfo, members: Iterable[int]) -> list[int]:
    """Return ranks of the job if the log has them for the whole communicator, else ranks of the communicator."""
    is_known = len(comm.ranks) == comm.nranks and None not in comm.ranks
    return sorted(global_ranks(comm, members) if is_known else members)


def _lines_of(facts: Facts, ranks: Iterable[int]) -> list[LastLine]:
    wanted = set(ranks)
    return [last for last in facts.job.last_lines if wanted & set(last.ranks)]


def evidence(facts: Facts) -> list[Evidence]:
    """Return the evidence: the last lines of the silent ranks and of those that wait."""
    wait = waiting_ranks(facts)
    if wait is None:
        return []
    silent = [last.evidence for last in [*_lines_of(facts, wait.silent), *actors_of(facts).mute] if last.evidence]
    waiting = [last.evidence for last in _lines_of(facts, wait.waiting) if last.evidence]
    return [*silent[:2], *waiting[:1], *waiting[-1:]] if silent else [*waiting[:2], *waiting[2:][-1:]]


def last_of(facts: Facts, comm: CommunicatorInfo) -> list[Evidence]:
    """Return where the ranks of a communicator fall silent.

    One that did not start to connect, one that did, the last.
    """
    open_ = set(ranks_of(comm, comm.unconnected))
    lines = sorted(_lines_of(facts, ranks_of(comm, comm.started)), key=lambda last: (last.source, last.order))
    behind = [last for last in lines if open_ and open_.isdisjoint(last.ranks)]
    others = [last for last in lines if not open_ or not open_.isdisjoint(last.ranks)]
    shown = [*behind[-1:], *others[:1], *lines[-1:]]
    return [last.evidence for last in shown if last.evidence]


def _never_came(facts: Facts, wait: Waiting) -> bool:
    """Return whether some ranks have no line at all, and all others are where NCCL waits for every rank.

    If whole hosts are missing, it may be only their logs: then most of the job must be present.
    """
    comm = next(comm for comm in facts.job.communicators if comm.id == wait.communicator)
    if not wait.missing or wait.stage != _INITIALISATION or comm.parent is not None or actors_of(facts).mute:
        return False
    if any(len(last.ranks) > 1 for last in _lines_of(facts, wait.waiting)):
        return False  # ranks are threads: the missing ones may be others of the same process
    is_whole = {begin.process for begin in comm.begins} <= find_begun(facts)
    if len(wait.waiting) < max(_FEWEST, len(wait.missing)) or not is_whole:
        return False
    if actors_of(facts).homes.keys() >= set(wait.missing):
        return True
    unseen = comm.nranks - len(comm.started)
    return len(comm.hosts) > _FEWEST and unseen * len(comm.hosts) < comm.nranks


def _lags(facts: Facts, wait: Waiting) -> bool:
    """Return whether, by their timestamps, all silent ranks fell silent long before the others got that far."""
    behind = [*_lines_of(facts, wait.silent), *(actors_of(facts).mute if wait.missing else ())]
    times = [moment(last.time) for last in (*behind, *_lines_of(facts, wait.waiting))]
    if not behind or len(wait.missing) > len(actors_of(facts).mute) or not are_in_order(*times):
        return False
    seconds = [time.seconds for time in times if time]
    return max(seconds[len(behind) :], default=0.0) - max(seconds[: len(behind)]) >= _LONG


def describe(facts: Facts) -> str:
    """Return a sentence: who waits for whom and since when, and that the log may have been cut there."""
    wait = waiting_ranks(facts)
    assert wait is not None
    late, mute, probably = wait.missing or wait.silent, actors_of(facts).mute, ""
    if len(mute) == len(wait.missing):  # these are likely the same
        names = ", ".join(f"{last.process.host} pid {last.process.pid}" for last in mute[:_FEWEST])
        more = f" and {len(mute) - _FEWEST} more" if len(mute) > _FEWEST else ""
        since = f"silent since line {max((last.line for last in mute), default=0)}"
        probably = f" (probably {names}{more}, {since})"
    has = "have" if len(late) > 1 else "has"
    what = f"{has} not started{probably}" if wait.missing else f"{is_or_are(len(late))} silent"
    culprit = f"{ranks_word(late)} of {wait.nranks} {what}; " if late else ""
    whom = "it" if len(late) == 1 else "them" if late else "each other"
    since = f" since line {wait.since.line}" if wait.since else ""
    where = f" in the {_STAGES[wait.stage]} of communicator {wait.communicator}{since}"
    when = f" ({wait.time})" if wait.time else ""
    quiet = "" if facts.job.quiet is None else f"; no progress for {facts.job.quiet:.0f} s"
    cut = "" if facts.job.quiet is not None or facts.job.ended_by else f" (or the log was cut{_end_of_log(facts)})"
    return f"{culprit}{who_waits(wait.waiting)} for {whom}{where}{when}{quiet}{cut}"


def _end_of_log(facts: Facts) -> str:
    sources = facts.job.sources
    return f" at line {sources[0].lines}" if len(sources) == 1 else ""


def list_possible_ends(facts: Facts) -> str:
    """Return the possible reasons why a log ends in the middle, for the end of a sentence."""
    at = _end_of_log(facts)
    return f"{',' if at else ''}{at}: still starting, stuck, or cut"


def where_missing(facts: Facts) -> str:
    """Return where the missing ranks belong, by the order of the ranks on the hosts.

    Empty if the order does not show it.
    """
    wait, homes = waiting_ranks(facts), actors_of(facts).homes
    known = [(rank, *homes[rank]) for rank in (wait.missing if wait else ()) if rank in homes]
    words = [f"rank {rank} belongs on {host}, as local rank {local}" for rank, host, local in known[:4]]
    more = f"; {count(len(known) - len(words), 'other')} likewise" if len(known) > len(words) else ""
    return f". Judging by the order of the ranks, {'; '.join(words)}{more}" if words else ""


# How far each rank got, and what differs between ranks


def connecting(facts: Facts) -> dict[int, int]:
    """Return ranks whose last line is their end of a network connection, with the peer that has not done its own."""
    ends = {(last.source, last.order): last.ranks[0] for last in facts.job.last_lines if len(last.ranks) == 1}
    one_sided = facts.job.paths.where(
        lambda kind: (
            kind.transport == "NET" and any((link.send is None) != (link.receive is None) for link in kind.links)
        )
    )
    peers: dict[int, int] = {}
    for path in one_sided if ends else ():
        rank = next((ends[place] for line in path.evidence if (place := line.position) in ends), None)
        if rank in (path.src, path.dst):
            peers[rank] = path.dst if rank == path.src else path.src
    return peers


def phases(facts: Facts, comm: CommunicatorInfo) -> str:
    """Return how far each rank of a communicator got, the slowest first: ``rank 2 never started; rank 0-1 started …``.

    Ranks are those of the job, where the log shows all of these. A waiting rank got further than the one it waits for.
    """
    done = " and connected" if comm.state == "connected" else ""
    completed, connecting = set(comm.completed), set(comm.unconnected)
    steps = [
        (comm.absent - completed, "never started (no Init START)"),
        (comm.pending, "started but did not finish the initialization"),
        (completed - connecting if connecting else set[int](), "finished it but did not start to connect"),
        (connecting & completed, "started to connect, but no 'Connected all …' follows"),
        (completed if not connecting else set[int](), f"finished the initialization{done}"),
    ]
    is_of_job = facts.job.rank_space == "global" or len(facts.job.communicators) == 1
    parts = []
    for members, what in steps:
        ranks = global_ranks(comm, members) if is_of_job else set()
        who = ranks_word(ranks) if len(ranks) == len(members) else f"{ranks_word(members)} of {comm.id}"
        parts += [f"{who} {what}"] if members else []
    mute = [f"{last.process.host} pid {last.process.pid}" for last in actors_of(facts).mute]
    if mute:
        parts.append(f"{count(len(mute), 'process')} in the log never started a communicator ({list_words(mute)})")
    return "; ".join(parts)


def is_starting_another(facts: Facts) -> bool:
    """Return whether a communicator was started that no rank finished: the hang is in its initialization."""
    begun = (comm for comm in facts.job.communicators if comm.started and not (comm.completed or comm.ended))
    return any(not facts.paths_of(comm) for comm in begun)


def suspects(facts: Facts) -> str:
    """Differences between ranks that may be why they wait for each other; empty if there are none."""
    return f". Suspected, not proven: {list_words(found)}" if (found := _differences(facts)) else ""


def suspicion(facts: Facts) -> str:
    """Return the first of these differences, for a summary."""
    return f"; suspect: {found[0]}" if (found := _differences(facts)) else ""


def _differences(facts: Facts) -> list[str]:
    releases = facts.job.nccl_versions if facts.with_event(events.NcclVersion) else []
    versions = [f"NCCL releases differ: {', '.join(releases)}"] if len(releases) > 1 else []
    return [*versions, *(f"{as_shell([value])} on {owners(value)} only" for value in _outliers(facts))]


def ranks_that_differ(facts: Facts) -> set[int]:
    """Return the ranks of the job that have such a setting."""
    return {rank for value in _outliers(facts) for rank in value.ranks or ()}


@once
def _outliers(facts: Facts) -> list[Setting]:
    differing: list[Setting] = []
    for agreement in AGREEMENTS:
        values = facts.settings(agreement.name)
        lonely = (
            agreement.echoed and len(values) == 1 and values[0].ranks and ranks_without(facts, agreement, values[0])
        )
        shared = len(values) > 1 and (
            not agreement.on_host or any(set(a.hosts) & set(b.hosts) for a in values for b in values if a is not b)
        )
        if lonely or shared:
            differing += with_own_ranks(facts, [value for value in values if value.ranks])
    return differing


# What the log ends with, and what is missing there


def ends_after_nccl(facts: Facts, ends: Sequence[Evidence]) -> list[Evidence]:
    """Return the ends of the job that directly follow NCCL's last line, or a table without a row; no work is below."""
    if not ends:
        return []
    signs = last_signs(facts)
    before = {(last.source, last.order) for last in facts.job.last_lines}
    before |= positions_in(empty_tables(facts, ends))
    places = [(end, (end.source, end.order - back)) for end in ends for back in (1, 2)]
    return [end for end, place in places if place in before and signs.get(end.source, 0) < place[1]]


def empty_tables(facts: Facts, ends: Iterable[Evidence]) -> list[Evidence]:
    """Return the headers of nccl-tests tables that the end of the job directly follows: no row was printed.

    nccl-tests flushes each line as it prints it, and prints a row when all ranks have run that size (src/common.cu).
    A line in between may be such a row.
    """
    orders = positions_in(ends)
    return [head for head in _heads(facts) if (head.source, head.order + 1) in orders]


def ends_with_empty_table(facts: Facts) -> bool:
    """Return whether a source ends with the header of an nccl-tests table."""
    lines = {source.name: source.lines for source in facts.job.sources}
    return any(lines.get(head.source, 0) - head.order <= 1 for head in _heads(facts))


def _heads(facts: Facts) -> list[Evidence]:
    return [notice.evidence[-1] for notice in facts.notices("nccl-tests/test-units") if notice.evidence]


def connections_at_end(facts: Facts) -> list[Evidence]:
    """Return the connections at the end of a log that shows the start of the job: no line says that they came up.

    Connection lines alone are an excerpt of a log; a log that leads up to them from the start is stuck there, or was
    cut there.
    """
    job = facts.job
    begins = job.communicators or facts.with_event(events.BootstrapInterface)
    is_over = job.failed or job.ended_by or facts.with_event(events.NcclTestResult) or worked_last(facts)
    return [] if not begins or is_over or facts.errors(forced_ends=False) else job.broken_off


@once
def half_connected(facts: Facts) -> Selection:
    """Return the paths of which one end has no line although its rank connects elsewhere: the log ends meanwhile.

    Every end prints a line, which only a torn or filtered log lacks. A job that finished had all of them.
    """
    halves = facts.no_paths()
    nets = facts.paths(transport="NET").where(lambda kind: not kind.doubtful)
    for side in SIDES if facts.job.rank_space == "global" and _may_end_early(facts) else ():
        ended = nets.where(methodcaller("ends", side))
        able = {rank for (rank,) in ended.distinct(RANKS[side])}
        halves = halves | nets.exclude(ended).filter_values((RANKS[side],), able.__contains__)
    return halves if len(halves) > max(_LOST, len(nets) // _ONE_IN) else facts.no_paths()


@once
def last_to_connect(facts: Facts) -> set[int]:
    """Return the ranks that have not connected what others of a communicator have: the log ends meanwhile.

    Where all connections are there, the line that says so must be missing of fewer ranks than have it.
    """
    late: set[int] = set()
    for comm in facts.job.communicators if _may_end_early(facts) else ():
        rest = set(range(comm.nranks)) - set(comm.connected)
        is_open = comm.behind or (comm.state == "complete" and len(rest) <= len(comm.connected))
        if is_open and len(comm.completed) == comm.nranks:
            late |= global_ranks(comm, rest.union(comm.behind))
    return late


def _may_end_early(facts: Facts) -> bool:
    """Return whether the log is whole up to its end, which nothing shows to be that of the job."""
    job = facts.job
    is_over = usage.is_over(job) or job.failed or job.ended_by or facts.with_event(events.NcclTestResult)
    return _is_whole(job) and not (is_over or worked_last(facts))


def _is_whole(job: Job) -> bool:
    """Return whether a missing line shows something: no line is torn, and the log is not an excerpt."""
    is_torn = any(source.damaged_lines or source.repaired_lines or source.problem for source in job.sources)
    return not (is_torn or job.excerpt)


@once
def find_stragglers(facts: Facts) -> dict[str, object]:
    """Return what shows that the log ends before ranks did what others have done; empty where nothing does.

    ``halves`` are paths of which one end has no line, ``late`` the ranks that have not connected, ``unended`` those
    that have not destroyed a communicator, and ``unready`` those that have not finished the initialization of
    ``unfinished``, whatever is done below.
    """
    job = facts.job
    if (halves := half_connected(facts)) or last_to_connect(facts):
        return {"halves": halves, "late": last_to_connect(facts)}
    comms = [comm for comm in job.communicators if comm.started] if _is_whole(job) and not job.ended_by else []
    open_ = ((comm, set(comm.started) - set(comm.ended)) for comm in comms if comm.ended)
    few = ((comm, left) for comm, left in open_ if 1 / _ONE_IN <= len(left) / len(comm.started) < 1 / 2)
    unended = {rank for comm, left in few for rank in global_ranks(comm, left)}
    if unended:
        return {"unended": unended}
    if facts.with_event(events.NcclTestResult) or successes(facts):
        return {}
    for comm in comms:
        unready = set(comm.announced).difference(comm.completed, comm.ended)
        if unready and facts.paths_of(comm):
            return {"unready": global_ranks(comm, unready), "unfinished": comm.id}
    return {}


def is_local_p2p(facts: Facts) -> bool:
    """Return whether all connections are P2P, on one host."""
    paths = facts.job.paths
    return bool(paths) and not facts.spans_hosts() and all(kind.transport == "P2P" for kind in paths.kinds)


def unexplained_ends(facts: Facts) -> list[Evidence]:
    """Return the ends of the job right after NCCL's last line, if no launcher states why it ended.

    A healthy job without output ends like that as well: a stated reason is better evidence. An nccl-tests table without
    a row counts in any case: no collective returned, whoever ended the job.
    """
    silent = ends_after_nccl(facts, facts.job.ended_by)
    stated = [
        *facts.with_role("reason-stated", "others-run"),
        *facts.with_event(events.ProcessEnded, lambda event: event.is_external and event.order != "own"),
        *terminations(facts),
    ]
    is_known = stated and not empty_tables(facts, silent)
    return [] if is_known or node_failed(facts) else silent


def node_failed(facts: Facts) -> bool:
    """Return whether a scheduler reports that a node of the job failed: that explains a hang."""
    notices = since_start(facts, facts.with_role("forced-end"))
    return any(job_failure.reason(notice.event) == job_failure.NODE_FAILURE for notice in notices)


def is_timed_out(ends: Iterable[Evidence]) -> bool:
    """Return whether a watcher of the job timed out; a time limit of the scheduler also ends healthy jobs."""
    return any(_GAVE_UP.search(end.text) and not _LIMIT.search(end.text) for end in ends)
