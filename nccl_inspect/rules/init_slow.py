"""The initialisation of a communicator took long, most of it in one phase."""

from __future__ import annotations

from nccl_inspect.judging.engine import Facts, Results, Rule
from nccl_inspect.model.inventory import InitTiming
from nccl_inspect.model.job import CommunicatorInfo

RULE = Rule(
    name="init-slow",
    category="bootstrap",
    severity="info",
    title="The initialisation of a communicator took long, most of it in one phase",
)
_LONG = 30.0
"""Seconds: large jobs need some, and lazily loaded kernels do."""
_MOST = 0.5
"""The share of the phase."""
_CAUSES = {
    "bootstrap": (
        "ranks wait for the one that comes last, or connect over a slow or wrong interface; names may be resolved "
        "slowly",
        "NCCL_SOCKET_IFNAME=<interface>   # the fast one that all hosts share; which rank started last, by its times?",
    ),
    "kernels": (
        "CUDA loads NCCL's kernels, from a slow file system or compiles them: the library has no code for this GPU",
        "cuobjdump --list-elf libnccl.so.2 | grep -o 'sm_[0-9]*' | sort -u   # has it this GPU? "
        "CUDA_MODULE_LOADING=LAZY",
    ),
    "topo": (
        "detecting the machine is slow: NVML or sysfs answer slowly, or a GPU or NIC does not respond",
        "time nvidia-smi -q > /dev/null; nvidia-smi -pm 1   # on the host: persistence mode",
    ),
    "graphs": (
        "the search for rings and trees is slow on this topology",
        "NCCL_GRAPH_FILE=<graph.xml>   # reads what NCCL_GRAPH_DUMP_FILE wrote once",
    ),
    "connections": (
        "setting up transports is slow: the network refuses at first, or memory is registered slowly",
        "NCCL_DEBUG_SUBSYS=INIT,NET   # where it waits",
    ),
    "allgathers": (
        "ranks wait for a slower one: the rank with the shortest time here came last",
        "nccl-inspect timings job.log   # which rank took long in another phase?",
    ),
    "alloc": ("allocating memory is slow: the host reclaims memory, or pins pages slowly", "free -g; numactl -H"),
}
_OTHER = ("NCCL does not name the phase", "NCCL_DEBUG_SUBSYS=ALL   # the lines before and after the wait")


def judge(facts: Facts) -> Results:
    """Judge NCCL's own timings (2.22 and later): the slowest communicator, its phase and its slowest rank."""
    timed = [(timing, comm) for comm in facts.job.communicators for timing in comm.timings if timing.total >= _LONG]
    if not timed:
        return
    timing, comm = max(timed, key=lambda pair: pair[0].total)
    phase = max(timing.phases, key=timing.phases.__getitem__, default="")
    seconds = timing.phases.get(phase, 0.0)
    if seconds < _MOST * timing.total:
        return
    cause, step = _CAUSES.get(phase, _OTHER)
    rank = comm.ranks[timing.rank] if timing.rank < len(comm.ranks) else None
    yield RULE.finding(
        f"the initialisation of {comm.nranks} ranks took {timing.total:.0f} s, {seconds:.0f} s of it in {phase}",
        cause=f"likely: {cause}. {_spread(comm, phase, timing)}",
        impact="each start of the job takes this time, and each restart after a failure",
        fix=[step, "nccl-inspect timings <log>   # all ranks and phases"],
        confidence="likely",
        ranks=[] if rank is None else [rank],
        evidence=[timing.evidence],
    )


def _spread(comm: CommunicatorInfo, phase: str, slowest: InitTiming) -> str:
    """Return how the ranks differ in this phase."""
    others = [timing.phases.get(phase, 0.0) for timing in comm.timings if timing is not slowest]
    if not others:
        return "The log has the timing of one rank only"
    return f"The other ranks took {min(others):.0f} to {max(others):.0f} s for it"
