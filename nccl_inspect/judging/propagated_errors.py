"""Result codes that callers of NCCL pass on when a call fails and the log has no warning."""

from __future__ import annotations

from nccl_inspect.event.types import ErrorCascade
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.statements import is_propagated_error, message_of
from nccl_inspect.model.job import Notice

_WORDS = {
    1: ("torch/nccl-unhandled-cuda-error", "unhandled cuda error"),
    2: ("torch/nccl-system-error", "unhandled system error"),
    3: ("torch/nccl-internal-error", "internal error"),
    4: ("torch/nccl-invalid-argument", "invalid argument"),
    5: ("torch/nccl-invalid-usage", "invalid usage"),
    6: ("torch/nccl-remote-error", "remote process exited or there was a network error"),
}
"""By code the production of PyTorch's explanation, and NCCL's words (ncclGetErrorString)."""
_PASSED_ON = ("torch/watchdog-terminated", "torch/error-set", "torch/communicator-was-aborted")
"""Statements that end with an error of somebody else, which may be one of NCCL."""
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
    cascade, statements = frames(facts, code), _find_statements(facts, code)
    reached = [frame for frame in cascade if file_of(frame).rpartition("/")[2] in _INTERFACE]
    if not (reached or statements) or _is_explained(facts, statements):
        return []
    return [*cascade[:1], *statements, *reached]


def remote(facts: Facts) -> list[Notice]:
    """Return the statements that a call failed because a peer is gone; none if the log says more."""
    statements = [*frames(facts, _REMOTE), *_find_statements(facts, _REMOTE)]
    return [] if _is_explained(facts, statements) else statements


def _find_statements(facts: Facts, code: int) -> list[Notice]:
    """Return what PyTorch says of a call that failed with this code."""
    named, words = _WORDS[code]
    results = [*facts.with_role("nccl-result"), *facts.notices(*_PASSED_ON)]
    return [*facts.notices(named), *(one for one in results if words in message_of(one))]


def _is_explained(facts: Facts, statements: list[Notice]) -> bool:
    """Return whether a warning, an echo of a peer's end or another error says more than the code."""
    own = {id(one) for one in statements}
    errors = [one for one in facts.errors(forced_ends=False) if id(one) not in own]
    return any(one.level == "WARN" for one in facts.job.notices) or not all(map(is_propagated_error, errors))
