"""Each process sees only its own GPU, and CUDA cannot share memory between them."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, Finding, Layer, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import first_lines, hosts_in, ranks_in
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.hardware.cuda_codes import CUDA_CODES
from nccl_inspect.judging.hardware.peer_to_peer import not_shared
from nccl_inspect.judging.impact import SHM
from nccl_inspect.model.job import Selection

RULE = Rule(
    name="cuda-ipc-isolated-gpus",
    category="intra-node path",
    layer=Layer.SETTING,
    title="Each process sees only its own GPU, and memory cannot be shared between them",
    may_cause=("resource", "call"),
    shows=("no-gpu-access",),
    supersedes=("cuda-failure-in-connect", "p2p-import-failed"),
)


_FIX = (
    "Make all GPUs of the host visible to each process, and let it choose its own.",
    'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))   # in the program, before the first use of CUDA',
    "srun --gpu-bind=none <command>   # Slurm; or --gpus-per-node instead of --gpus-per-task",
    "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES=1   # Ray",
    f"NCCL_P2P_DISABLE=1   # a stopgap, slow: {SHM} through host memory ({SHM.link})",
)
_BY_BUS_ID, _NOT_FOUND = "DeviceGetHandleByPciBusId", "Not Found"
_UNREACHED = (101, 217)
"""CUDA's errors if this process has no such GPU, or no peer access to it: NCCL checks both before it chooses P2P,
except for GPUs that the process does not see (p2pCanConnect in src/transport/p2p.cc)."""


def judge(facts: Facts) -> Results:
    """Judge failed imports, if all ranks are CUDA device 0 on different GPUs or CUDA's error implies isolation."""
    isolated = set(facts.job.isolated_hosts)
    failed = [notice for notice in not_shared(facts) if isolated.intersection(notice.hosts)]
    unreached = _unreached(facts)
    failed += [notice for notice in unreached if not any(notice is other for other in failed)]
    if not failed:
        yield from _hidden_from_nvml(facts)
        return
    isolated_here = isolated.intersection(hosts_in(failed))
    yield RULE.finding(
        f"GPU memory could not be shared, and each process sees only one GPU: {failed[0].message}",
        cause="P2P with a GPU that this process cannot see: the launcher shows each process its own GPU as device 0 "
        "(Ray, srun --gpus-per-task, one container per rank), so NCCL assumes that P2P works and cannot test it"
        + ("" if isolated_here else ". If NCCL sees both GPUs, it tests them and does not use P2P that CUDA lacks"),
        impact="the connection cannot be made: the job stops",
        fix=_FIX,
        confidence="likely",
        notices=failed,
        evidence=[*first_evidence(failed), *first_lines(_p2p_paths(facts, failed))[:1]],
        fatal=True,
    )


def _hidden_from_nvml(facts: Facts) -> Iterator[Finding]:
    """Judge GPUs of peers that NVML does not find: CUDA_VISIBLE_DEVICES hides none from it, but a device cgroup does.

    For each rank of its host, NCCL asks NVML for the GPU by its bus id (ncclTopoFillGpu in src/graph/xml.cc).
    """
    unfound = [
        notice
        for notice in facts.notices("nccl/nvml-failed")
        if value(notice, "call") == _BY_BUS_ID and str(value(notice, "error")).strip() == _NOT_FOUND
    ]
    alone = [notice for notice in unfound if not notice.earliest.device]
    if not alone:
        return
    processes = {process for notice in alone for process in notice.processes}
    several = any(len({pid for name, pid, *_ in processes if name == host}) > 1 for host in hosts_in(alone))
    yield RULE.clue(
        f"NVML does not find the GPU of another rank: {alone[0].message}",
        cause="each process is confined to its own GPU by a device cgroup (Slurm with ConstrainDevices and a GPU for "
        "each task, one container per GPU): NVML and CUDA do not show it the other GPUs of the host"
        if several
        else "the container or the device cgroup hides that GPU, or it fell off the bus",
        impact="NCCL does not know the links of the GPU, and memory cannot be shared with its rank: shared memory is "
        "used instead of NVLink, or the connection fails",
        fix=_FIX,
        confirm="nvidia-smi -L   # in the environment of one rank: does it list all GPUs of the host?",
        confidence="likely" if several else "possible",
        notices=unfound,
        explains_errors=unfound,
    )


def _unreached(facts: Facts) -> list[Notice]:
    """Imports that fail because the pair has no P2P, in processes that may see only one GPU."""
    calls = [
        failure.notice
        for failure in cuda.failures(facts)
        if failure.code in _UNREACHED and str(failure.file).endswith("transport/p2p.cc")
    ]
    handles = [
        notice
        for notice in facts.notices("nccl/p2p-ipc-handle-failed")
        if CUDA_CODES.get(str(value(notice, "error"))) in _UNREACHED
    ]
    return [notice for notice in (*handles, *calls) if not notice.earliest.device]


def _p2p_paths(facts: Facts, failed: list[Notice]) -> Selection:
    """The P2P paths of the ranks that failed."""
    ranks = ranks_in(failed)
    return facts.paths("intra", "P2P").only(("src", "dst"), lambda *ends: not ranks or not ranks.isdisjoint(ends))
