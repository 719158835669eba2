"""The layers of failure (``layer:``): how near to a cause a statement is.

In one process, what is lower explains what is higher. The layer of a production follows from its roles and its tone;
one that stands elsewhere states it.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum


class Layer(IntEnum):
    """Holds how far a statement is from a cause."""

    HARDWARE = 0
    SYSTEM = 1
    """The machine and its operating system: memory, limits, files, scheduler."""
    SETTING = 2
    """Variables, files and versions: no event, but how things are."""
    PROGRAM = 3
    """What the program did: an exception, a wrong call, a call that one rank did not make."""
    RESOURCE = 4
    """What NCCL asked the system for and did not get."""
    CALL = 5
    """A call of NCCL failed; why is said elsewhere."""
    FRAMEWORK = 6
    """What PyTorch and others raise because a call of NCCL failed."""
    END = 7
    """A process ended."""
    LAUNCHER = 8
    """Launchers, schedulers and users that end processes, or report that some ended."""
    LOSS = 9
    """A connection was lost: its other end, or the way to it, is gone."""
    WAIT = 10
    """A rank waited for others until it gave up."""
    NONE = 11
    """It says nothing about a failure."""


FOREIGN = frozenset((Layer.LOSS, Layer.WAIT))
"""What a process says of others: a failure does not begin there if one of these is known to have failed."""
BY_NAME = {layer.name.lower(): layer for layer in Layer}
"""The layers as grammar files and rules name them."""

_OF_ROLE = {
    "memory-kill": Layer.SYSTEM,
    "forced-end": Layer.LAUNCHER,
    "watchdog-status": Layer.WAIT,
    "watchdog-dump": Layer.NONE,
    "logged-retry": Layer.NONE,
    "connection-retry": Layer.NONE,
    "store-failed": Layer.LOSS,
    "connection-failed": Layer.LOSS,
    "completion-error": Layer.LOSS,
    "efa-completion": Layer.LOSS,
    "daemon-gone": Layer.LOSS,
    "program-cuda-error": Layer.PROGRAM,
    "bad-argument": Layer.PROGRAM,
    "thread-refused": Layer.SYSTEM,
    "nccl-exception": Layer.FRAMEWORK,
    "failed-call": Layer.CALL,
    "nccl-result": Layer.CALL,
    "dead-communicator": Layer.CALL,
    "program-exception": Layer.PROGRAM,
    "ends-job": Layer.LAUNCHER,
    "propagated-error": Layer.FRAMEWORK,
}
"""The first of these that a production has decides."""
_OF_EVENT = {"CollectiveTimeout": Layer.WAIT, "ErrorCascade": Layer.CALL, "ProcessEnded": Layer.END}
_OF_ECHO = {"nccl": Layer.LOSS, "torch": Layer.NONE, "launchers": Layer.LAUNCHER}
"""By dialect the layer of what only repeats a failure (``tone=echo``)."""


def layer_of(stated: str, event: str, roles: Collection[str], tone: str, dialect: str) -> Layer:
    """Return the layer of a production.

    Args:
        stated: in its ``layer:``; empty where it states none.
        roles: in its ``role:``.
    """
    if stated:
        return BY_NAME[stated]
    if event in _OF_EVENT:
        return _OF_EVENT[event]
    role = next((layer for name, layer in _OF_ROLE.items() if name in roles), None)
    if role is not None:
        return role
    return _OF_ECHO.get(dialect, Layer.NONE) if tone == "echo" else Layer.RESOURCE
