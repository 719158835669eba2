"""What the rules about hangs share: how far each rank came, and what differs between ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nccl_inspect.event.types import BootstrapInterface, NcclTestResult, NcclVersion
from nccl_inspect.judging.agreement import AGREEMENTS, without
from nccl_inspect.judging.facts import Facts, global_ranks, words_of
from nccl_inspect.judging.process_ends.ends import since_start
from nccl_inspect.judging.process_ends.hydra import stopped
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.model.statements import job_end
from nccl_inspect.util.wording import count, listed, ranks_word


def phases(facts: Facts, comm: CommunicatorInfo) -> str:
    """How far each rank of a communicator came, the last first: ``rank 2 never began; rank 0-1 began and …``.

    Ranks are those of the communicator. A rank that is only waiting came further than the one it waits for.
    """
    everyone = set(range(comm.nranks))
    started, completed, connecting = set(comm.started), set(comm.completed), set(comm.unconnected)
    steps = [
        (everyone - started - completed, "never began (no Init START)"),
        (started - completed, "began and did not finish the initialisation"),
        (completed - connecting if connecting else set[int](), "finished it and began no connection"),
        (connecting & completed, "began to connect, and no 'Connected all …' follows"),
        (completed if not connecting else set[int](), _DONE.get(comm.state, "finished the initialisation")),
    ]
    told = [f"{ranks_word(ranks)} {what}" for ranks, what in steps if ranks]
    mute = [f"{last.process.host} pid {last.process.pid}" for last in facts.job.last_lines if not last.ranks]
    if mute:
        told.append(f"{count(len(mute), 'process', 'es')} of the log began no communicator at all ({listed(mute)})")
    return "; ".join(told)


def absent_elsewhere(facts: Facts, comm: CommunicatorInfo) -> set[int]:
    """The ranks that have not begun a communicator, where all of them finished another one: they are in the log."""
    absent = set() if comm.completed else set(range(comm.nranks)) - set(comm.started)
    known = global_ranks(comm, absent)
    done = {rank for one in facts.job.communicators if one is not comm for rank in global_ranks(one, one.completed)}
    return known if known and len(known) == len(absent) and known <= done else set()


def is_starting_another(facts: Facts) -> bool:
    """Whether a communicator was begun that no rank finished: what stands still is its initialisation."""
    begun = (comm for comm in facts.job.communicators if comm.started and not (comm.completed or comm.ended))
    return any(not facts.paths_of(comm) for comm in begun)


_DONE = {"connected": "finished the initialisation and connected"}


def suspects(facts: Facts) -> str:
    """What differs between ranks and may be why they wait for each other; empty where nothing does."""
    found = _differences(facts)
    return f". Suspect, not proved: {listed(found)}" if found else ""


def suspicion(facts: Facts) -> str:
    """The first of it, for a summary."""
    found = _differences(facts)
    return f"; suspect: {found[0]}" if found else ""


def _differences(facts: Facts) -> list[str]:
    return [*_versions(facts), *_settings(facts)]


def _versions(facts: Facts) -> list[str]:
    told = facts.said(NcclVersion)
    if len(facts.job.nccl_versions) < 2 or not told:
        return []
    return [f"NCCL releases differ: {', '.join(facts.job.nccl_versions)}"]


def _settings(facts: Facts) -> list[str]:
    found = []
    for agreement in AGREEMENTS:
        values = facts.settings(agreement.name)
        lonely = agreement.echoed and len(values) == 1 and values[0].ranks and without(facts, agreement, values[0])
        shared = len(values) > 1 and (
            not agreement.on_host or any(set(a.hosts) & set(b.hosts) for a in values for b in values if a is not b)
        )
        if lonely or shared:
            found += [f"{words_of([value])} on {ranks_word(value.ranks)} only" for value in values if value.ranks]
    return found


def silenced_at_once(facts: Facts, ends: Iterable[Evidence]) -> list[Evidence]:
    """Those lines that end the job right after NCCL's last line, or a table without a row: no work in between."""
    before = {(last.source, last.order) for last in facts.job.last_lines}
    before |= {(head.source, head.order) for head in empty_tables(facts, ends)}
    return [end for end in ends if any(source == end.source and 0 < end.order - order <= 2 for source, order in before)]


def empty_tables(facts: Facts, ends: Iterable[Evidence]) -> list[Evidence]:
    """The heads of tables of nccl-tests that the end of the job follows at once: no row was printed.

    nccl-tests writes out each line as it prints it, a row when all ranks have run that size (src/common.cu). A line in
    between may be such a row.
    """
    orders = [(end.source, end.order) for end in ends]
    heads = _heads(facts)
    return [head for head in heads if any(head.source == name and at - head.order == 1 for name, at in orders)]


def ends_with_empty_table(facts: Facts) -> bool:
    """Whether a source ends with the head of a table of nccl-tests."""
    lines = {source.name: source.lines for source in facts.job.sources}
    return any(lines.get(head.source, 0) - head.order <= 1 for head in _heads(facts))


def _heads(facts: Facts) -> list[Evidence]:
    return [notice.evidence[-1] for notice in facts.notices("nccl-tests/test-units") if notice.evidence]


def broken_off(facts: Facts) -> list[Evidence]:
    """The connections with which a log ends that shows how the job began: nothing says that they came up.

    Some connection lines by themselves were cut out of a log; one that goes on to them from the beginning is stuck
    there, or was cut there.
    """
    begins = facts.job.communicators or facts.said(BootstrapInterface)
    is_other = facts.job.failed or facts.job.ended_by or facts.failures() or facts.said(NcclTestResult)
    return [] if not begins or is_other else facts.job.broken_off


def is_local_p2p(facts: Facts) -> bool:
    """Whether all connections are P2P, on one host."""
    paths = facts.job.paths
    return bool(paths) and not facts.several_hosts() and all(kind.transport == "P2P" for kind in paths.kinds)


def silence(facts: Facts) -> list[Evidence]:
    """The lines that end the job right after NCCL's last line, where nobody says that he ended it.

    A job that works ends like that as well where it prints nothing: who says outright why it ended knows more. A table
    of nccl-tests without a row is no silence: nothing came back, whoever ended it then.
    """
    silent = silenced_at_once(facts, facts.job.ended_by)
    stated = [
        *facts.notices("launchers/slurm-cancelled", "launchers/slurm-first-exit", "launchers/mpi-hydra-ctrl-c"),
        *stopped(facts),
    ]
    is_known = stated and not empty_tables(facts, silent)
    return [] if is_known or node_failed(facts) else silent


def node_failed(facts: Facts) -> bool:
    """Whether Slurm says that a node of the job failed: then nobody hangs for another reason."""
    said = since_start(facts, facts.notices("launchers/slurm-node-failure", "launchers/slurm-cancelled"))
    return any(job_end.reason(notice.event) == job_end.NODE_FAILURE for notice in said)


def gave_up(ends: Iterable[Evidence]) -> bool:
    """Whether somebody who watched the job gave up; a limit of the scheduler ends jobs that work as well."""
    return any(_GAVE_UP.search(end.text) and not _LIMIT.search(end.text) for end in ends)


_GAVE_UP = re.compile(r"(?i)\btime(?:d )?-?out\b")
_LIMIT = re.compile(r"(?i)TIME LIMIT|walltime|RUNLIMIT|time limit for job execution")
