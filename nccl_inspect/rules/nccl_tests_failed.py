"""nccl-tests ended with an error that nothing else in the log explains."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, value
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.judging.statements import is_propagated_error

_ENDS = (
    *("nccl-tests/test-nccl-failure", "nccl-tests/test-cuda-failure"),
    *("nccl-tests/test-timeout", "nccl-tests/test-too-few-gpus"),
)


def find(facts: Facts) -> Iterator[Hit]:
    """Find the test's last lines, where the log has no error of NCCL or the machine."""
    notices = facts.notices(*_ENDS)
    errors = [error for error in facts.errors(forced_ends=False) if not is_propagated_error(error)]
    if notices and all(error.production in _ENDS for error in errors):
        code = cuda.CUDA_CODES.get(str(value(notices[0], "error")))
        steps = cuda.fix(code, (cuda.DO_THEY_FIT, cuda.IS_BROKEN))
        yield Hit(notices, {"cause": cuda.cause(code), "steps": steps, "out of memory": code == cuda.OUT_OF_MEMORY})
