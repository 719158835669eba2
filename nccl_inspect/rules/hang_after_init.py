"""Communicators were initialized, then made no progress until the job was ended."""

from nccl_inspect.judging.engine import Evidence, Facts, Finding, Needs, Results, Rule
from nccl_inspect.judging.facts import global_ranks
from nccl_inspect.judging.hangs import standstill
from nccl_inspect.judging.hangs.progress import (
    connections_at_end,
    empty_tables,
    ends_with_empty_table,
    is_local_p2p,
    is_starting_another,
    is_timed_out,
    node_failed,
    phases,
    ranks_that_differ,
    suspects,
    suspicion,
    unexplained_ends,
)
from nccl_inspect.judging.hangs.watchdog import without_output
from nccl_inspect.judging.process_ends.ends import process_ends
from nccl_inspect.judging.remedies import STACKS
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.model.statements import usage
from nccl_inspect.util.wording import count, ranks_word

RULE = Rule(
    name="hang-after-init",
    category="failures",
    tells=("never-connected",),
    title="No progress after initialization until the job was ended",
    shows=("death",),
    supersedes=("ended-from-outside",),
)
_WITHOUT_GDR = (
    "NCCL_NET_GDR_LEVEL=LOC   # a test: if this works, GPUDirect RDMA is at fault (ACS, IOMMU). Not a fix: it is slow"
)
_FIX = (
    STACKS,
    "Compare NCCL_ALGO, NCCL_PROTO, NCCL_P2P_* and the interfaces of all ranks.",
    "Open all ports of the data network between all hosts, with one MTU; test with nccl-tests on two hosts.",
    "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,COLL   # on all ranks: shows the last call of each",
)
_CAPTURE = Needs(
    "the end of the log of every rank, up to the kill or the timeout", all_ranks=True, subsystems=("INIT", "COLL")
)


def judge(facts: Facts) -> Results:
    """Judge communicators that every rank completed and none ended, in logs that are provably complete."""
    if facts.job.failed or facts.errors(forced_ends=False) or node_failed(facts):
        return
    comms = [comm for comm in usage.in_use(facts.job) if len(comm.completed) == comm.nranks > 1 and not comm.ended]
    ends = facts.job.ended_by
    open_ones = sorted((comm for comm in comms if comm.unconnected), key=lambda comm: not _odd(facts, comm))
    silent = [] if process_ends(facts) else unexplained_ends(facts)
    if (cut := connections_at_end(facts)) and comms and not is_local_p2p(facts):
        yield _clue(facts, comms[0], cut)
    elif open_ones and ends:
        yield _finding(facts, open_ones[0], ends, "connections are missing")
    elif open_ones:
        yield RULE.undecided(f"{_who(open_ones[0], len(open_ones) - 1)}: stuck, or the log was cut there", _CAPTURE)
    elif comms and silent and facts.job.paths and not is_starting_another(facts):
        tables = empty_tables(facts, silent)
        yield _finding(
            facts,
            comms[-1],
            [*tables[-1:], *silent],
            "all connections are up, and nccl-tests printed the header of its table but no row"
            if tables
            else "all connections are up, and only the line that ends the job follows",
            no_row=bool(tables),
        )
    elif comms and not ends and ends_with_empty_table(facts):
        yield RULE.undecided(
            "the log ends with the header of an nccl-tests table: no row yet, stuck, or the log was cut there", _CAPTURE
        )
    elif not facts.job.communicators and not ends and ends_with_empty_table(facts):
        yield _empty(facts)


def _odd(facts: Facts, comm: CommunicatorInfo) -> set[int]:
    """The ranks of a communicator that alone have a setting."""
    return ranks_that_differ(facts) & {rank for rank in comm.ranks if rank is not None}


def _clue(facts: Facts, comm: CommunicatorInfo, cut: list[Evidence]) -> Finding:
    paths = facts.job.paths
    return RULE.clue(
        (f"{_who(comm)}, and the log ends there" if comm.unconnected else "the log ends while ranks connect")
        + standstill.undecided(facts),
        cause="unknown from this log; likely: "
        "the log was cut off there, or the ranks are stuck. Usual causes: blocked ports of "
        f"the data network, lost packets (MTU, GID), or ranks with different settings{suspects(facts)}",
        impact="if it is stuck, the first collective never returns; NCCL waits without a timeout",
        fix=_FIX,
        confirm="Check whether the log continues: every rank of a healthy job prints 'Connected all rings'.",
        severity="info",
        confidence="possible",
        ranks=[rank for rank in comm.ranks if rank is not None],
        hosts=comm.hosts,
        evidence=cut,
        open_paths=paths,
    )


def _empty(facts: Facts) -> Finding:
    """Return the clue that a table without a row is, where no line of NCCL says how far the ranks came."""
    heads = facts.notices("nccl-tests/test-units")
    return RULE.clue(
        "the log ends with the header of an nccl-tests table, without a row",
        cause="unknown from this log; likely: no rank finished the first collective (blocked data ports, hosts or pods "
        "without the devices of their network, ranks that are missing), or the log was cut off there",
        impact="if it is stuck, the first collective never returns; NCCL waits without a timeout",
        fix=_FIX,
        confirm="Check whether rows follow: the first one appears within seconds.",
        severity="info",
        confidence="possible",
        ranks=(),
        hosts=facts.hosts(),
        evidence=[heads[-1].evidence[-1]],
    )


def _who(comm: CommunicatorInfo, others: int = 0) -> str:
    """Return which ranks began to connect.

    Global ranks, or those of the communicator where the log does not show them.
    """
    idle = set(range(comm.nranks)) - set(comm.unconnected)
    more = f" (and in {count(others, 'other communicator')})" if others else ""
    rest = f"; {ranks_word(global_ranks(comm, idle) or idle)} did not" if idle else ""
    busy = global_ranks(comm, comm.unconnected) or comm.unconnected
    return f"{ranks_word(busy)} began to connect in communicator {comm.id}{more}{rest}"


def _finding(facts: Facts, comm: CommunicatorInfo, ends: list[Evidence], what: str, *, no_row: bool = False) -> Finding:
    odd, unseen = _odd(facts, comm), without_output(facts)
    no_output = f"; no output of {ranks_word(unseen)}" if unseen and not odd else ""
    missing = f". The log has no output of {ranks_word(unseen)}, which may hold up the others" if no_output else ""
    is_shown = (no_row or comm.unconnected or is_timed_out(ends)) and not missing
    return RULE.finding(
        f"{count(comm.nranks, 'rank')} of communicator {comm.id} finished initialization, then made no progress"
        f"{suspicion(facts)}{no_output}",
        cause="unknown from this log: "
        f"{what}. How far the ranks came: {phases(facts, comm)}. Possible causes: ranks that "
        "call different collectives or have different settings, blocked data ports, or a path that loses packets"
        f"{suspects(facts)}{missing}",
        impact="the first collective never returns; NCCL waits without a timeout",
        fix=[
            _FIX[0],
            *([_WITHOUT_GDR] if any(kind.gdr for kind in facts.inter_host_net_paths().kinds) else []),
            *_FIX[1:],
        ],
        confidence="likely" if is_shown else "possible",
        ranks=odd or [rank for rank in comm.ranks if rank is not None],
        hosts=comm.hosts,
        evidence=[*standstill.last_of(facts, comm), *ends[:2]],
        fatal=True,
    )
