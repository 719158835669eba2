"""The memory of a GPU could not be shared with another rank of its host."""

from collections.abc import Iterator

from nccl_inspect.judging import propagated_errors
from nccl_inspect.judging.engine import Facts, first_evidence, value
from nccl_inspect.judging.hardware.cuda import code_of
from nccl_inspect.judging.hardware.peer_to_peer import not_shared
from nccl_inspect.judging.page_words import Hit

_NOT_PERMITTED, _REFUSED = 800, 111
_CUDA_FAILED = 1
"""ncclUnhandledCudaError."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find failed imports and failed Unix sockets; a refused socket is the echo of other errors."""
    by_cuda, sockets = not_shared(facts), facts.with_role("handle-socket")
    failures = {*map(id, by_cuda), *map(id, sockets)}
    others = [error for error in facts.errors() if error.level == "WARN" and id(error) not in failures]
    if by_cuda or (sockets and not others):
        is_forbidden = any(code_of(notice) == _NOT_PERMITTED for notice in by_cuda)
        is_refused = not by_cuda and all(value(notice, "errno") == _REFUSED for notice in sockets)
        yield Hit([*by_cuda, *sockets], {"forbidden": is_forbidden, "refused": is_refused})
    elif not sockets and not others and (frames := propagated_errors.frames(facts, _CUDA_FAILED, "transport/p2p.cc")):
        yield Hit(frames, {"frames": True}, evidence=first_evidence(frames[:2]))
