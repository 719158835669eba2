"""On one host with only P2P connections, the first collective never returned."""

from nccl_inspect.event.types import CollectiveTimeout
from nccl_inspect.judging.engine import Evidence, Facts, Finding, Layer, Notice, Results, Rule, first_evidence
from nccl_inspect.judging.evidence import ras
from nccl_inspect.judging.facts import first_lines, hosts_of_paths, ranks_of_paths
from nccl_inspect.judging.hangs import standstill
from nccl_inspect.judging.hangs.progress import (
    connections_at_end,
    empty_tables,
    is_local_p2p,
    is_starting_another,
    is_timed_out,
    phases,
    suspects,
    unexplained_ends,
)
from nccl_inspect.judging.hangs.watchdog import waits
from nccl_inspect.judging.hardware.machine_type import gpu_names
from nccl_inspect.judging.process_ends.ends import process_ends
from nccl_inspect.judging.remedies import STACKS
from nccl_inspect.judging.statements import is_propagated_error
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.model.statements import usage
from nccl_inspect.util.patterns import later
from nccl_inspect.util.wording import count

RULE = Rule(
    name="hang-after-p2p-setup",
    category="failures",
    layer=Layer.PROGRAM,
    title="No progress on one host after P2P connections were set up",
    supersedes=("ended-from-outside", "hang-after-init"),
)
_FIRST_WORK = 1
_BY_PCIE = later(r"\b(?:GeForce|Quadro|RTX|TITAN|T4|A10G?|A16|A40|L4|L20|L40S?)\b")
_TYPICAL = "is typical of PCIe traffic that an IOMMU or ACS misroutes, or of a virtual machine without P2P support"
_FIX = (
    "NCCL_P2P_DISABLE=1   # a test: if this works, P2P is at fault. Not a fix: it is slow",
    "sudo lspci -vvv | grep ACSCtl   # SrcValid+ means on: disable VT-d and ACS in the BIOS, or "
    "boot the kernel with iommu=pt",
    "nvidia-smi topo -p2p r   # p2pBandwidthLatencyTest of the CUDA samples also checks the data",
    STACKS,
)


def judge(facts: Facts) -> Results:
    """Judge jobs on one host with only P2P paths that were ended before anything returned, where a line proves it."""
    paths = facts.job.paths
    if (cut := connections_at_end(facts)) and is_local_p2p(facts):
        yield _clue(facts, cut)
        return
    comms = [comm for comm in usage.in_use(facts.job) if len(comm.completed) == comm.nranks > 1 and not comm.ended]
    if not comms or not is_local_p2p(facts):
        return
    if (
        facts.job.failed
        or any(comm.unconnected for comm in comms)
        or any(map(_is_other, facts.errors(forced_ends=False)))
    ):
        return
    if is_starting_another(facts):
        return
    stuck = _first_work(facts, comms[0])
    silent = [] if process_ends(facts) else unexplained_ends(facts)
    if stuck or (silent and not waits(facts)):
        comm = comms[0] if stuck else comms[-1]
        tables = [] if stuck else empty_tables(facts, silent)
        together = ras.in_step(facts)
        yield RULE.finding(
            f"{count(comm.nranks, 'rank')} on one host connected via P2P, and "
            + (
                "not even the first collective returned"
                if stuck or tables
                else "nothing followed until the job was ended"
            ),
            cause="unknown from this log. "
            f"How far the ranks came: {phases(facts, comm)}. On one host with P2P a hang "
            f"right after the setup {_TYPICAL}; a rank that called something else looks the same"
            f"{suspects(facts)}{together}",
            impact="a call never returns, with GPUs at 100 %"
            if together
            else "the first collective never returns, with all GPUs at 100 %",
            fix=[*ras.IN_STEP_FIX, *_FIX[:-1]] if together else _FIX,
            confidence="likely" if stuck or tables or is_timed_out(silent) else "possible",
            ranks=[rank for rank in comm.ranks if rank is not None],
            hosts=comm.hosts,
            evidence=[*first_lines(paths)[:2], *first_evidence(stuck[:2]), *tables[-1:], *silent[:1]],
            fatal=True,
        )


def _is_over_pcie(facts: Facts) -> bool:
    """Whether the GPUs have no NVLink, or at most a bridge: there P2P depends on board and settings."""
    over_pcie = any(facts.link(kind) == "PCIe" for kind in facts.paths().kinds)
    return over_pcie or any(_BY_PCIE.search(name) for name in gpu_names(facts.job))


def _clue(facts: Facts, cut: list[Evidence]) -> Finding:
    paths = facts.job.paths
    return RULE.clue(
        f"the log ends while ranks of one host set up P2P{standstill.undecided(facts)}",
        cause="unknown from this log; likely: "
        "the log was cut off there, or the ranks are stuck. On one host with P2P a hang " + _TYPICAL,
        impact="if it is stuck, the job does not start, with its GPUs at 100 % or idle",
        fix=_FIX,
        confirm="Check whether the log continues: every rank of a healthy job prints 'Connected all rings' or "
        "'Init COMPLETE'.",
        severity="warning" if _is_over_pcie(facts) else "info",
        confidence="possible",
        ranks=ranks_of_paths(paths),
        hosts=hosts_of_paths(paths),
        evidence=cut,
        open_paths=paths,
    )


def _is_other(notice: Notice) -> bool:
    """Whether a failure is neither PyTorch's timeout nor its effect."""
    return not (isinstance(notice.event, CollectiveTimeout) or is_propagated_error(notice))


def _first_work(facts: Facts, comm: CommunicatorInfo) -> list[Notice]:
    """The timeouts of all ranks in the first work of a process group; nothing if a rank did not arrive."""
    timeouts = [wait for wait in waits(facts) if wait.seq <= _FIRST_WORK]
    arrived = {wait.rank if wait.rank is not None else wait.member for wait in timeouts}
    everyone = set(range(comm.nranks))
    return [wait.notice for wait in timeouts] if len(timeouts) == len(waits(facts)) and arrived >= everyone else []
