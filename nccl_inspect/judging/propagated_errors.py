"""Result codes that callers of NCCL pass on when a call fails and the log has no warning."""

from __future__ import annotations

from nccl_inspect.event.types import ErrorCascade
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.statements import error_of, is_propagated_error
from nccl_inspect.model.job import Notice

_WORDS = {
    1: ("torch/nccl-unhandled-cuda-error", "unhandled cuda error"),
    2: ("torch/nccl-system-error", "unhandled system error"),
    3: ("torch/nccl-internal-error", "internal error"),
    4: ("torch/nccl-invalid-argument", "invalid argument"),
    5: ("torch/nccl-invalid-usage", "invalid usage"),
}
"""By code the production of PyTorch's explanation, and NCCL's words (ncclGetErrorString)."""
_REMOTE = 6
"""ncclRemoteError."""
_INTERFACE = ("init.cc", "group.cc", "enqueue.cc", "collectives.cc")
"""A frame of these files means that the error reached the caller of NCCL."""


def frames(facts: Facts, code: int | None = None, files: str | tuple[str, ...] = "") -> list[Notice]:
    """Return the lines ``file:line -> code`` with this code and in one of these files, in the order of the log."""
    return facts.with_event(ErrorCascade, lambda event: code in (None, event.code) and event.file.endswith(files))


def file_of(frame: Notice) -> str:
    """Return the source file of such a line."""
    assert isinstance(frame.event, ErrorCascade)
    return frame.event.file


def find_unexplained(facts: Facts, code: int) -> list[Notice]:
    """Return the statements that a call failed with this code, its first frame first; none if the log says more."""
    cascade = frames(facts, code)
    reached = [frame for frame in cascade if file_of(frame).rpartition("/")[2] in _INTERFACE]
    named, words = _WORDS[code]
    statements = [
        *facts.notices(named),
        *(notice for notice in facts.with_role("nccl-result") if words in error_of(notice)),
    ]
    if not (reached or statements) or _is_explained(facts):
        return []
    return [*cascade[:1], *statements, *reached]


def remote(facts: Facts) -> list[Notice]:
    """Return the frames of a call that failed because a peer is gone; none if the log says more."""
    return [] if _is_explained(facts) else frames(facts, _REMOTE)


def _is_explained(facts: Facts) -> bool:
    """Return whether a warning, an echo of a peer's end or another error says more than the code."""
    warned = any(notice.level == "WARN" for notice in facts.job.notices)
    return warned or any(not is_propagated_error(notice) for notice in facts.errors(forced_ends=False))
