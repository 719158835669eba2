"""CUDA itself cannot be initialized."""

from collections.abc import Iterator

from nccl_inspect.judging import exceptions
from nccl_inspect.judging.engine import Effects, Facts, Notice, value
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.hardware.cuda_codes import CUDA_CODES, START_ANSWERS
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.judging.statements import error_of, message_of
from nccl_inspect.util.text import cut

_NOT_INITIALIZED, _BUSY, _UNKNOWN, _NO_DEVICE = 3, 46, 999, 100
_WIDTH = 200
_NVML = {"Driver/library version mismatch": 803, "Driver Not Loaded": _NO_DEVICE, "Unknown Error": _UNKNOWN}
"""Errors of NVML, with the CUDA error that has the same causes."""
_STATED = {"torch/no-gpus": _NO_DEVICE, "torch/no-gpus-available": _NO_DEVICE, "torch/driver-too-old": 35}
"""PyTorch's own messages."""


def find(facts: Facts) -> Iterator[Hit | Effects]:
    """Find errors of CUDA's initialization; a process that already connects has another fault."""
    program = [*facts.with_role("program-cuda-error"), *facts.notices(*_STATED)]
    survived = [notice for notice in program if exceptions.is_survived(facts, notice)]
    yield Effects(survived)
    found = [(notice, _code(notice)) for notice in cuda.failed_calls(facts)]
    found += [(notice, _program_code(notice)) for notice in program if notice not in survived]
    # An error of NVML at WARN stops NCCL (src/misc/nvmlwrap.cc).
    nvml = [notice for notice in facts.notices("nccl/nvml-failed") if notice.level == "WARN"]
    found += [(notice, _NVML.get(str(value(notice, "error")))) for notice in nvml]
    notices = [notice for notice, code in found if code is not None]
    if notices:
        codes = sorted({code for _, code in found if code is not None})
        codes = [code for code in codes if code != _NO_DEVICE] or codes  # "no GPU" follows from the others
        named = {
            "error": cut(message_of(notices[0]).strip(), _WIDTH),
            "causes": "; ".join(START_ANSWERS[code].cause for code in codes),
            "steps": [step for code in codes for step in START_ANSWERS[code].fix],
            "vague": {_BUSY, _UNKNOWN}.issuperset(codes),
        }
        yield Hit(notices, named)


def _code(notice: Notice) -> int | None:
    code, file = cuda.code_of(notice), cuda.file_of(notice)
    is_connecting = "transport" in file or file.endswith(("proxy.cc", "channel.cc"))
    return code if code in START_ANSWERS and (code == _NOT_INITIALIZED or not is_connecting) else None


def _program_code(notice: Notice) -> int | None:
    """Return the code of an error that the program's own call returned; 'unknown error' may occur at any time."""
    words = [text for text, code in CUDA_CODES.items() if code in START_ANSWERS and code != _UNKNOWN]
    stated = next((CUDA_CODES[text] for text in words if text in error_of(notice)), None)
    return _STATED.get(notice.production, stated)
