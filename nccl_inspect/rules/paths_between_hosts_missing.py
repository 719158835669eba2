"""The log shows only connections within hosts of a communicator that spans several hosts."""

from nccl_inspect.event.base import is_named
from nccl_inspect.judging.engine import Facts, Results, Rule
from nccl_inspect.judging.facts import global_ranks
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.util.wording import count, listed

RULE = Rule(
    name="paths-between-hosts-missing",
    category="log quality",
    severity="warning",
    title="The log has no path between the hosts of a connected communicator",
)


def judge(facts: Facts) -> Results:
    """Judge communicators with ranks of several hosts in the log: their rings cross hosts."""
    comms = [comm for comm in facts.job.communicators if _is_spread(comm) and _is_cut_short(facts, comm)]
    if not comms:
        return
    names = [comm.id for comm in comms]
    hosts = sorted({host for comm in comms for host in comm.hosts})
    nets = sorted({net for comm in comms for net in comm.networks})
    unseen = [comm for comm in comms if len(comm.started) < comm.nranks]
    yield RULE.finding(
        f"the log has no path between the {count(len(hosts), 'host')} of communicator {listed(names)}, only paths "
        "within hosts",
        cause="the log ends before these connections were made, their lines are lost, or the ranks that connect the "
        "hosts are not in it" + (f" ({_seen(unseen[0])})" if unseen else ""),
        impact="the connections between the hosts are not judged"
        + (f"; they were going to use {listed(nets)}" if nets else ""),
        fix=[
            "Let the job run its first step, and collect the log of every rank up to that point.",
            "NCCL_DEBUG_FILE=/logs/nccl.%h.%p.log   # one file per process: no lines are torn or lost",
        ],
        confidence="possible",
        ranks=[rank for comm in comms for rank in global_ranks(comm, comm.started)],
        hosts=hosts,
        evidence=[line for comm in comms for line in (comm.network_lines or comm.evidence)[:1]],
    )


def _is_spread(comm: CommunicatorInfo) -> bool:
    return len(comm.hosts) > 1 and all(map(is_named, comm.hosts))


def _is_cut_short(facts: Facts, comm: CommunicatorInfo) -> bool:
    """Whether it has paths within hosts only, and these cannot all be another communicator's."""
    paths = facts.paths_of(comm)
    return bool(paths) and all(kind.scope == "intra" for kind in paths.kinds) and not comm.guessed


def _seen(comm: CommunicatorInfo) -> str:
    return f"{len(comm.started)} of {comm.nranks} ranks of communicator {comm.id} are"
