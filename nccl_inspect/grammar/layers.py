"""What a statement is: its roles (``role:``), and the layer of failure (``layer:``), how near to a cause it is.

Rules and engines select lines by role (``facts.with_role``), so a new line of a kind is one block in a grammar file. In
one process, what is lower explains what is higher. The layer of a production follows from its roles and its tone; one
that is elsewhere states it.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from pathlib import Path


class Layer(IntEnum):
    """Holds how far a statement is from a cause."""

    HARDWARE = 0
    SYSTEM = 1  # the machine and its operating system: memory, limits, files, scheduler
    SETTING = 2  # variables, files and versions: no event, but how things are
    PROGRAM = 3  # what the program did: an exception, a wrong call, a call that one rank did not make
    RESOURCE = 4  # what NCCL asked the system for and did not get
    CALL = 5  # a call of NCCL failed; why is said elsewhere
    FRAMEWORK = 6  # what PyTorch and others raise because a call of NCCL failed
    END = 7  # a process ended
    LAUNCHER = 8  # launchers, schedulers and users that end processes, or report that some ended
    LOSS = 9  # a connection was lost: its other end, or the way to it, is gone
    WAIT = 10  # a rank waited for others until it gave up
    NONE = 11  # it says nothing about a failure


FOREIGN = frozenset((Layer.LOSS, Layer.WAIT))
"""What a process says of others: a failure does not begin there if one of these is known to have failed."""
BY_NAME = {layer.name.lower(): layer for layer in Layer}  # the layers as grammar files and rules name them


@cache
def list_roles() -> dict[str, tuple[str, Layer | None]]:
    """Return each role of ``roles.txt`` with its sentence and the layer that it tells, the nearest to a cause first."""
    text = (Path(__file__).parent / "roles.txt").read_text(encoding="utf-8")
    entries = (line.split(": ", 1) for line in text.splitlines() if line and line[0] != "#")
    named = ((name.rstrip("]").split(" ["), sentence) for name, sentence in entries)
    return {name: (sentence, BY_NAME[layer[0]] if layer else None) for (name, *layer), sentence in named}
