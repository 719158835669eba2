"""A CUDA call failed while NCCL set up a communicator or its connections."""

from nccl_inspect.judging.engine import Facts, Results, Rule
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.hardware.cuda_codes import AT_START
from nccl_inspect.judging.hardware.peer_to_peer import is_of_fabric
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="cuda-failure-in-connect",
    category="failures",
    title="A CUDA call failed while NCCL set up its connections",
    supersedes=("cuda-call-failed",),
    local=True,
)
_CONNECT = ("transport", "proxy", "channel")
_P2P_IMPORT, _SHM = (1, 304, 400, 800), (1, 217, 801)
"""Codes that rules about one source file cover."""
_MAPPING, _FABRIC = 711, (802, 919)
_WHERE = "NCCL_DEBUG=INFO   # on all ranks: the lines above the warning show which connection was being made"
_FIX_KERNEL = (cuda.IS_BROKEN, cuda.WHICH_KERNEL, _WHERE)
_FIX = (
    cuda.IS_BROKEN,
    "nvidia-smi   # on the host and in the container: same driver, all GPUs, a matching CUDA?",
    "NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility   # of the container",
    _WHERE,
)
_NO_SUCH_GPU = 101
_HIDDEN = (
    "P2P with a GPU that this process cannot see: most often containers or pods that each have only some GPUs of the "
    "host, or CUDA_VISIBLE_DEVICES with one GPU per process"
)
_FIX_HIDDEN = (
    "Give all GPUs of the host to one container, make them visible to each process, and choose one by local rank.",
    "NCCL_CUMEM_ENABLE=0   # a test (2.18 and later): CUDA IPC handles instead of cuMem",
    "NCCL_P2P_DISABLE=1   # a test: the job should then run, over shared memory",
    _WHERE,
)


def judge(facts: Facts) -> Results:
    """Judge failed calls during set-up that no more specific rule covers."""
    failed = [failure for failure in cuda.failures(facts) if _is_ours(failure)]
    if not failed:
        return
    first = failed[0]
    notices = [failure.notice for failure in failed]
    yield RULE.finding(
        f"CUDA failed in {first.file}: {listed(map(cuda.words, failed))}",
        cause=_HIDDEN if _is_hidden(first) else cuda.cause(first.code),
        impact=cuda.IMPACT,
        fix=_FIX_HIDDEN
        if _is_hidden(first)
        else cuda.on_hardware(cuda.fix(first.code, _FIX_KERNEL if first.code in cuda.KERNEL_ERRORS else _FIX), facts),
        confidence="likely",
        notices=notices,
        fatal=True,
        explains_errors=cuda.matching_exceptions(facts, failed),
    )


def _is_hidden(failure: cuda.Failure) -> bool:
    return failure.code == _NO_SUCH_GPU and str(failure.file).endswith("transport/p2p.cc")


def _is_ours(failure: cuda.Failure) -> bool:
    code, file = failure.code, failure.file
    if file is None or cuda.is_launch(failure) or code in (cuda.OUT_OF_MEMORY, _MAPPING, *_FABRIC):
        return False
    if file.endswith("transport/p2p.cc"):
        return code not in _P2P_IMPORT
    if file.endswith("transport/shm.cc"):
        return code not in _SHM
    if file.endswith("transport/nvls.cc"):
        return not is_of_fabric(failure)
    return code not in AT_START or file.startswith(_CONNECT)
