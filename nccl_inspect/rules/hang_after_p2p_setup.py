"""On one host with only P2P connections, the first collective never returned."""

from collections.abc import Iterator

from nccl_inspect.event.types import CollectiveTimeout
from nccl_inspect.judging import at_end
from nccl_inspect.judging.check import Facts, Hit, first_evidence
from nccl_inspect.judging.ends import process_ends
from nccl_inspect.judging.evidence import ras
from nccl_inspect.judging.hardware.machine_type import gpu_names
from nccl_inspect.judging.statements import is_propagated_error
from nccl_inspect.judging.watchdog import waits
from nccl_inspect.model.statements import usage
from nccl_inspect.util.patterns import compile_later

_FIRST_WORK = 1
_BY_PCIE = compile_later(r"\b(?:GeForce|Quadro|RTX|TITAN|T4|A10G?|A16|A40|L4|L20|L40S?)\b")


def find(facts: Facts) -> Iterator[Hit]:
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
        yield Hit([], named, (), paths.ends(), paths.hosts(), cut, open_paths=paths)
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
        yield Hit([], named, (), ranks, comm.hosts, lines)
