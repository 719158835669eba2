"""A system call failed in NCCL, and the log does not show which."""

from collections.abc import Iterator

from nccl_inspect.judging import propagated_errors
from nccl_inspect.judging.check import Facts, Hit

_SYSTEM_ERROR = 2
_FILES = ("shm", "socket", "bootstrap", "ib", "xml")


def find(facts: Facts) -> Iterator[Hit]:
    """Find NCCL's code 2 if no warning explains it, and the source file of the first frame."""
    if errors := propagated_errors.find_unexplained(facts, _SYSTEM_ERROR):
        first = next(iter(propagated_errors.frames(facts, _SYSTEM_ERROR)), None)
        file = propagated_errors.file_of(first) if first else ""
        known = tuple(part for part in _FILES if part in file)
        yield Hit(errors, {"from": f"; it came from {file}" if file else ""}, known)
