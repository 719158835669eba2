"""The memory of a GPU could not be shared with another rank of its host."""

from collections.abc import Iterator

from nccl_inspect.judging import propagated_errors
from nccl_inspect.judging.engine import Facts, Finding, Results, Rule, first_evidence, value
from nccl_inspect.judging.hardware.cuda import code_of
from nccl_inspect.judging.hardware.peer_to_peer import not_shared
from nccl_inspect.judging.remedies import GPUS_IN_POD

RULE = Rule(
    name="p2p-import-failed",
    category="intra-node path",
    title="The memory of a GPU could not be shared with another rank of its host",
    shows=("no-gpu-access",),
    local=True,
)
_NOT_PERMITTED = 800
_IMEX = (
    "ls -l /dev/nvidia-caps-imex-channels/   # if hosts share one NVLink domain (GB200, GB300): can this user write "
    "to it?"
)
_REFUSED = 111
_CUDA_FAILED = 1
"""ncclUnhandledCudaError."""


def judge(facts: Facts) -> Results:
    """Judge failed imports and failed Unix sockets; a refused socket is the echo of other errors."""
    refused_by_cuda = not_shared(facts)
    sockets = facts.with_role("handle-socket")
    failures = [*refused_by_cuda, *sockets]
    others = [n for n in facts.errors() if n.level == "WARN" and not any(n is failure for failure in failures)]
    if not failures and not others:
        yield from _frames_only(facts)
    if not failures or (others and not refused_by_cuda):
        return
    is_forbidden = any(code_of(notice) == _NOT_PERMITTED for notice in refused_by_cuda)
    only_refused = not refused_by_cuda and all(value(notice, "errno") == _REFUSED for notice in sockets)
    yield RULE.finding(
        f"GPU memory could not be shared between ranks of one host: {failures[0].message}",
        cause="a rank does not answer: it uses another P2P setting (NCCL_P2P_DISABLE, NCCL_CUMEM_ENABLE on some ranks "
        "only), has died, or is in another network namespace"
        if only_refused
        else "NCCL treats the ranks as one host, but one cannot see the GPU of the other: containers with one GPU "
        "each that share a host name or NCCL_HOSTID, or different network or IPC namespaces",
        impact="the connection cannot be made, and the job stops",
        fix=[
            *([_IMEX] if is_forbidden else []),
            GPUS_IN_POD,
            "Or set hostNetwork: true and hostIPC: true in all pods of a node.",
            "Use the same NCCL_P2P_*, NCCL_CUMEM_* and NCCL_HOSTID on all ranks; NCCL_DEBUG=INFO prints them.",
            "NCCL_IPC_USE_ABSTRACT_SOCKET=0   # 2.29 and later, across network namespaces; needs a shared /tmp",
            "NCCL_CUMEM_ENABLE=0   # a test; then NCCL_P2P_DISABLE=1 (slow)",
        ],
        confidence="possible" if only_refused else "likely",
        notices=failures,
        fatal=True,
    )


def _frames_only(facts: Facts) -> Iterator[Finding]:
    """Judge frames of the P2P transport with CUDA's code if the warning with the reason is missing."""
    frames = propagated_errors.frames(facts, _CUDA_FAILED, "transport/p2p.cc")
    if not frames:
        return
    yield RULE.clue(
        "a CUDA call failed while ranks of one host shared GPU memory; the line with the reason is missing",
        cause="usually NCCL treats the ranks as one host, but one cannot see the GPU of the other: containers with one "
        "GPU each, or different network or IPC namespaces",
        impact="the connection cannot be made, and the job stops",
        fix=[GPUS_IN_POD, "NCCL_CUMEM_ENABLE=0   # a test; then NCCL_P2P_DISABLE=1 (slow)"],
        confirm="Look for 'NCCL WARN Cuda failure' directly above these lines.",
        notices=frames,
        evidence=first_evidence(frames[:2]),
    )
