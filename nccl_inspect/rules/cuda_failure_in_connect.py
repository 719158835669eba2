"""A CUDA call failed while NCCL set up a communicator or its connections."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.hardware.cuda_codes import AT_START
from nccl_inspect.judging.hardware.cuda_hits import make_hit
from nccl_inspect.judging.hardware.peer_to_peer import is_of_fabric
from nccl_inspect.judging.page_words import Hit

_CONNECT = ("transport", "proxy", "channel")
_P2P_IMPORT, _SHM = (1, 304, 400, 800), (1, 217, 801)
"""Codes that rules about one source file cover."""
_MAPPING, _FABRIC, _NO_SUCH_GPU = 711, (802, 919), 101


def find(facts: Facts) -> Iterator[Hit]:
    """Find failed calls during set-up that no more specific rule covers."""
    if failed := [failure for failure in cuda.failures(facts) if _is_ours(failure)]:
        first = failed[0]
        which = cuda.WHICH_KERNEL if first.code in cuda.KERNEL_ERRORS else cuda.SAME_DRIVER
        of_container = [] if first.code in cuda.KERNEL_ERRORS else [cuda.ALL_GPUS]
        is_hidden = first.code == _NO_SUCH_GPU and str(first.file).endswith("transport/p2p.cc")
        steps = [cuda.IS_BROKEN, which, *of_container, cuda.WHICH_CONNECTION]
        yield make_hit(facts, failed, steps, {"hidden": is_hidden})


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
