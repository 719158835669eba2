"""Each process sees only its own GPU, and CUDA cannot share memory between them."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, Notice, first_evidence, value
from nccl_inspect.judging.facts import first_lines, hosts_in, ranks_in
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.hardware.cuda_codes import CUDA_CODES
from nccl_inspect.judging.hardware.peer_to_peer import not_shared
from nccl_inspect.judging.impact import SHM
from nccl_inspect.judging.page_words import Hit

_BY_BUS_ID, _NOT_FOUND = "DeviceGetHandleByPciBusId", "Not Found"
_UNREACHED = (101, 217)
"""CUDA's errors if this process has no such GPU, or no peer access to it: NCCL checks both before it chooses P2P,
except for GPUs that the process does not see (p2pCanConnect in src/transport/p2p.cc)."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find failed imports, if all ranks are CUDA device 0 on different GPUs or CUDA's error implies isolation.

    CUDA_VISIBLE_DEVICES hides no GPU from NVML, but a device cgroup does: NCCL asks NVML for the GPU of each rank of
    its host by its bus id (ncclTopoFillGpu in src/graph/xml.cc).
    """
    isolated, named = set(facts.job.isolated_hosts), {"shm": SHM, "shm_source": SHM.link}
    failed = [notice for notice in not_shared(facts) if isolated.intersection(notice.hosts)]
    failed += [notice for notice in _find_unreached(facts) if not any(notice is other for other in failed)]
    if failed:
        ranks = ranks_in(failed)
        paths = facts.paths("intra", "P2P").only(("src", "dst"), lambda *ends: not ranks or not ranks.isdisjoint(ends))
        known = ["isolated"] if isolated.intersection(hosts_in(failed)) else []
        yield Hit(failed, named, known, evidence=[*first_evidence(failed), *first_lines(paths)[:1]])
        return
    unfound = [
        notice
        for notice in facts.notices("nccl/nvml-failed")
        if value(notice, "call") == _BY_BUS_ID and str(value(notice, "error")).strip() == _NOT_FOUND
    ]
    alone = [notice for notice in unfound if not notice.earliest.device]
    if alone:
        processes = {process for notice in alone for process in notice.processes}
        several = any(len({pid for name, pid, *_ in processes if name == host}) > 1 for host in hosts_in(alone))
        yield Hit(
            [*alone, *(one for one in unfound if one not in alone)],
            named,
            ["hidden", *(["several"] if several else [])],
        )


def _find_unreached(facts: Facts) -> list[Notice]:
    """Find imports that fail because the pair has no P2P, in processes that may see only one GPU."""
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
