"""Connections with which a log ends, while nothing says that they came up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nccl_inspect.event import types as events
from nccl_inspect.model.fold.fold import Burst, ProcessLog, Step
from nccl_inspect.model.fold.places import source_and_line
from nccl_inspect.model.fold.process_log import Edge

_SEND_RECV = 1
"""Connections of send/recv are made on demand, and no line says that they are all there."""


def connections(logs: Iterable[ProcessLog], lines: Mapping[int, int]) -> list[Edge]:
    """The last connection of each process; nothing where a rank has all of them, or where other lines follow.

    Args:
        logs: of the processes.
        lines: how many each source has, by its number.
    """
    last: list[Edge] = []
    ends: dict[int, int] = {}
    for log in logs:
        source, line = source_and_line(log.last)
        ends[source] = max(line, ends.get(source, 0))
        bursts = [step for step in log.steps if isinstance(step, Burst) and step.key.conn != _SEND_RECV]
        if not bursts:
            continue
        if any(_says_done(step, bursts[0].place) for step in log.steps if isinstance(step, Step)):
            return []
        last.append(max(bursts, key=lambda burst: burst.last).final)
    return last if all(lines[source] == line for source, line in ends.items()) else []


def _says_done(step: Step, begun: int) -> bool:
    """Whether a step after the first connection says that connections are there: until 2.21 COMPLETE follows them."""
    match step.event:
        case events.Connected() | events.CommEnd():
            return True
        case events.CommInit(phase="COMPLETE") | events.ChannelCounts():
            return step.place > begun
    return False
