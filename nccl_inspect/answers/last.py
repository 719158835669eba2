"""The last of several last lines."""

from __future__ import annotations

from collections.abc import Sequence

from nccl_inspect.model.inventory import LastLine
from nccl_inspect.util.times import in_order, moment


def latest(lines: Sequence[LastLine]) -> LastLine | None:
    """The line printed last: by time if all lines have the same clock, else in reading order."""
    if len(lines) < 2:
        return lines[0] if lines else None
    times = [moment(line.time) for line in lines]
    if in_order(*times):
        seconds = [time.seconds for time in times if time]
        return lines[max(range(len(lines)), key=lambda at: (seconds[at], lines[at].order))]
    last_source = lines[-1].source
    return max((line for line in lines if line.source == last_source), key=lambda line: line.order)
