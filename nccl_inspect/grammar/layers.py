"""What a statement is: its roles (``role:``), and the layer of failure (``layer:``), how near to a cause it is.

Rules and engines select lines by role (``facts.with_role``), so a new line of a kind is one block in a grammar file. In
one process, what is lower explains what is higher. The layer of a production follows from its roles and its tone; one
that is elsewhere states it.
"""

from __future__ import annotations

from collections.abc import Collection
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

_OF_EVENT = {"CollectiveTimeout": Layer.WAIT, "ErrorCascade": Layer.CALL, "ProcessEnded": Layer.END}
_OF_ECHO = {"nccl": Layer.LOSS, "torch": Layer.NONE, "launchers": Layer.LAUNCHER}
"""By dialect the layer of what only repeats a failure (``tone=echo``)."""


@cache
def list_roles() -> dict[str, tuple[str, Layer | None]]:
    """Return each role of ``roles.txt`` with its sentence and the layer that it tells, the nearest to a cause first."""
    text = (Path(__file__).parent / "roles.txt").read_text(encoding="utf-8")
    entries = (line.split(": ", 1) for line in text.splitlines() if line and line[0] != "#")
    named = ((name.rstrip("]").split(" ["), sentence) for name, sentence in entries)
    return {name: (sentence, BY_NAME[layer[0]] if layer else None) for (name, *layer), sentence in named}


def layer_of(stated: str, event: str, roles: Collection[str], tone: str, dialect: str) -> Layer:
    """Return the layer of a production."""
    if stated:
        return BY_NAME[stated]
    if event in _OF_EVENT:
        return _OF_EVENT[event]
    for name, (_, layer) in list_roles().items() if roles else ():
        if layer is not None and name in roles:
            return layer
    return _OF_ECHO.get(dialect, Layer.NONE) if tone == "echo" else Layer.RESOURCE
