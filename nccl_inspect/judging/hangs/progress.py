"""How far each rank got, and what differs between ranks: shared by the rules about hangs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from nccl_inspect.event.types import BootstrapInterface, NcclTestResult, NcclVersion, ProcessEnded
from nccl_inspect.judging.agreement import AGREEMENTS, owners, ranks_without, with_own_ranks
from nccl_inspect.judging.facts import RANKS, Facts, as_shell, global_ranks, once
from nccl_inspect.judging.process_ends.ends import since_start, terminations
from nccl_inspect.model.connection import SIDES
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.job import CommunicatorInfo, PathKind, Selection, Setting
from nccl_inspect.model.statements import job_end, usage
from nccl_inspect.util.patterns import later
from nccl_inspect.util.wording import count, listed, ranks_word


def connecting(facts: Facts) -> dict[int, int]:
    """Ranks whose last line is their side of a connection over the network, with the peer that has not done its own."""
    ends = {(last.source, last.order): last.ranks[0] for last in facts.job.last_lines if len(last.ranks) == 1}
    one_sided = facts.job.paths.where(
        lambda kind: (
            kind.transport == "NET" and any((link.send is None) != (link.receive is None) for link in kind.links)
        )
    )
    peers: dict[int, int] = {}
    for path in one_sided if ends else ():
        rank = next((ends[place] for line in path.evidence if (place := (line.source, line.order)) in ends), None)
        if rank in (path.src, path.dst):
            peers[rank] = path.dst if rank == path.src else path.src
    return peers


def phases(facts: Facts, comm: CommunicatorInfo) -> str:
    """Return how far each rank of a communicator got, the slowest first: ``rank 2 never started; rank 0-1 started …``.

    Ranks are those of the job, where the log shows all of these. A waiting rank got further than the one it waits for.
    """
    everyone = set(range(comm.nranks))
    started, completed, connecting = set(comm.started), set(comm.completed), set(comm.unconnected)
    steps = [
        (everyone - started - completed, "never started (no Init START)"),
        (started - completed, "started but did not finish the initialization"),
        (completed - connecting if connecting else set[int](), "finished it but did not start to connect"),
        (connecting & completed, "started to connect, but no 'Connected all …' follows"),
        (completed if not connecting else set[int](), _DONE.get(comm.state, "finished the initialization")),
    ]
    parts = [f"{_named(facts, comm, ranks)} {what}" for ranks, what in steps if ranks]
    mute = [f"{last.process.host} pid {last.process.pid}" for last in facts.job.last_lines if not last.ranks]
    if mute:
        parts.append(f"{count(len(mute), 'process', 'es')} in the log never started a communicator ({listed(mute)})")
    return "; ".join(parts)


def _named(facts: Facts, comm: CommunicatorInfo, members: set[int]) -> str:
    ranks = global_ranks(comm, members)
    is_of_job = facts.job.rank_space == "global" or len(facts.job.communicators) == 1
    return ranks_word(ranks) if is_of_job and len(ranks) == len(members) else f"{ranks_word(members)} of {comm.id}"


def absent_elsewhere(facts: Facts, comm: CommunicatorInfo) -> set[int]:
    """The ranks that did not start a communicator although all of them, as the log shows, finished another one."""
    if facts.job.rank_space != "global":
        return set()  # the same number is another process in each communicator
    done = {
        rank for other in facts.job.communicators if other is not comm for rank in global_ranks(other, other.completed)
    }
    if comm.completed or comm.nranks - len(comm.started) > len(done):
        return set()
    absent = set(range(comm.nranks)) - set(comm.started)
    ranks = global_ranks(comm, absent)
    return ranks if ranks and len(ranks) == len(absent) and ranks <= done else set()


def is_starting_another(facts: Facts) -> bool:
    """Whether a communicator was started that no rank finished: the hang is in its initialization."""
    begun = (comm for comm in facts.job.communicators if comm.started and not (comm.completed or comm.ended))
    return any(not facts.paths_of(comm) for comm in begun)


_DONE = {"connected": "finished the initialization and connected"}


def suspects(facts: Facts) -> str:
    """Differences between ranks that may be why they wait for each other; empty if there are none."""
    differences = _differences(facts)
    return f". Suspected, not proven: {listed(differences)}" if differences else ""


def suspicion(facts: Facts) -> str:
    """The first of these differences, for a summary."""
    differences = _differences(facts)
    return f"; suspect: {differences[0]}" if differences else ""


def _differences(facts: Facts) -> list[str]:
    releases = facts.job.nccl_versions if facts.with_event(NcclVersion) else []
    versions = [f"NCCL releases differ: {', '.join(releases)}"] if len(releases) > 1 else []
    return [*versions, *(f"{as_shell([value])} on {owners(value)} only" for value in _outliers(facts))]


def ranks_that_differ(facts: Facts) -> set[int]:
    """The ranks of the job that have such a setting."""
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


def ends_after_nccl(facts: Facts, ends: Sequence[Evidence]) -> list[Evidence]:
    """The ends of the job that directly follow NCCL's last line, or a table without a row: no work in between."""
    if not ends:
        return []
    before = {(last.source, last.order) for last in facts.job.last_lines}
    before |= {(head.source, head.order) for head in empty_tables(facts, ends)}
    return [end for end in ends if not before.isdisjoint((end.source, end.order - back) for back in (1, 2))]


def empty_tables(facts: Facts, ends: Iterable[Evidence]) -> list[Evidence]:
    """The headers of nccl-tests tables that the end of the job directly follows: no row was printed.

    nccl-tests flushes each line as it prints it, and prints a row when all ranks have run that size (src/common.cu).
    A line in between may be such a row.
    """
    orders = {(end.source, end.order) for end in ends}
    return [head for head in _heads(facts) if (head.source, head.order + 1) in orders]


def ends_with_empty_table(facts: Facts) -> bool:
    """Whether a source ends with the header of an nccl-tests table."""
    lines = {source.name: source.lines for source in facts.job.sources}
    return any(lines.get(head.source, 0) - head.order <= 1 for head in _heads(facts))


def _heads(facts: Facts) -> list[Evidence]:
    return [notice.evidence[-1] for notice in facts.notices("nccl-tests/test-units") if notice.evidence]


def connections_at_end(facts: Facts) -> list[Evidence]:
    """The connections at the end of a log that shows the start of the job: no line says that they came up.

    Connection lines alone are an excerpt of a log; a log that leads up to them from the start is stuck there, or was
    cut there.
    """
    begins = facts.job.communicators or facts.with_event(BootstrapInterface)
    is_other = (
        facts.job.failed or facts.job.ended_by or facts.errors(forced_ends=False) or facts.with_event(NcclTestResult)
    )
    return [] if not begins or is_other else facts.job.broken_off


@once
def half_connected(facts: Facts) -> Selection:
    """Return the paths of which one end has no line although its rank connects elsewhere: the log ends meanwhile.

    Every end prints a line, which only a torn or filtered log lacks. A job that finished had all of them.
    """
    nets = facts.paths(transport="NET").where(lambda kind: not kind.doubtful)
    halves = facts.no_paths()
    if facts.job.rank_space != "global" or not _may_end_early(facts):
        return halves
    for side in SIDES:
        silent = nets.where(partial(_lacks_end, side))
        able = {rank for (rank,) in nets.without(silent).distinct(RANKS[side])}
        halves = halves | silent.only((RANKS[side],), able.__contains__)
    return halves if len(halves) > max(_LOST, len(nets) // 8) else facts.no_paths()


_LOST = 2
"""Paths of which a line may be lost, and one in eight."""


def _lacks_end(side: str, kind: PathKind) -> bool:
    return not kind.ends(side)


@once
def last_to_connect(facts: Facts) -> set[int]:
    """Return the ranks that have not connected what most others of a communicator have: the log ends meanwhile."""
    late: set[int] = set()
    for comm in facts.job.communicators if _may_end_early(facts) else ():
        rest = set(range(comm.nranks)) - set(comm.connected)
        if comm.state == "complete" and len(comm.completed) == comm.nranks and 0 < len(rest) <= len(comm.connected):
            late |= global_ranks(comm, rest)
    return late


def _may_end_early(facts: Facts) -> bool:
    """Whether the log is whole up to its end, which nothing shows to be that of the job."""
    job = facts.job
    is_over = usage.is_over(job) or job.failed or job.ended_by or facts.with_event(NcclTestResult)
    is_torn = any(source.damaged_lines or source.repaired_lines or source.problem for source in job.sources)
    return not (is_over or is_torn or job.excerpt)


def is_local_p2p(facts: Facts) -> bool:
    """Whether all connections are P2P, on one host."""
    paths = facts.job.paths
    return bool(paths) and not facts.spans_hosts() and all(kind.transport == "P2P" for kind in paths.kinds)


def unexplained_ends(facts: Facts) -> list[Evidence]:
    """The ends of the job right after NCCL's last line, if no launcher states why it ended.

    A healthy job without output ends like that as well: a stated reason is better evidence. An nccl-tests table without
    a row counts in any case: no collective returned, whoever ended the job.
    """
    silent = ends_after_nccl(facts, facts.job.ended_by)
    stated = [
        *facts.notices("launchers/slurm-cancelled", "launchers/slurm-first-exit", "launchers/mpi-hydra-ctrl-c"),
        *facts.with_event(ProcessEnded, lambda event: event.is_external and event.order != "own"),
        *terminations(facts),
    ]
    is_known = stated and not empty_tables(facts, silent)
    return [] if is_known or node_failed(facts) else silent


def node_failed(facts: Facts) -> bool:
    """Whether Slurm reports that a node of the job failed: that explains a hang."""
    notices = since_start(facts, facts.notices("launchers/slurm-node-failure", "launchers/slurm-cancelled"))
    return any(job_end.reason(notice.event) == job_end.NODE_FAILURE for notice in notices)


def is_timed_out(ends: Iterable[Evidence]) -> bool:
    """Whether a watcher of the job timed out; a time limit of the scheduler also ends healthy jobs."""
    return any(_GAVE_UP.search(end.text) and not _LIMIT.search(end.text) for end in ends)


_GAVE_UP = later(r"(?i)\btime(?:d )?-?out\b")
_LIMIT = later(r"(?i)TIME LIMIT|walltime|RUNLIMIT|time limit for job execution")
