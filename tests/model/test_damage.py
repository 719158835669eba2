"""What only torn lines of a healthy job state is damage, wherever they are torn, and not a finding."""

from __future__ import annotations

import large_job
import pytest

import nccl_inspect

_LINES = large_job.log(3).splitlines(keepends=True)
_CONNECTION = next(n for n, line in enumerate(_LINES) if n > 300 and b"[send] via NET" in line)
_OTHER = next(n for n in range(_CONNECTION + 1, len(_LINES)) if b":4016:" in _LINES[n])


def _swap(at: int) -> bytes:
    """Return a log in which another process writes amid a connection line; what it cuts off ends its own line."""
    line, other = _LINES[_CONNECTION], _LINES[_OTHER]
    torn = [*_LINES[:_CONNECTION], line[:at] + other[:40] + b"\n" + line[at:] + other[40:], *_LINES[_CONNECTION + 1 :]]
    return b"".join(part for n, part in enumerate(torn) if n != _OTHER)


@pytest.mark.slow
def test_lines_torn_anywhere() -> None:
    alarms = {}
    for at in range(20, len(_LINES[_CONNECTION]), 3):
        job = nccl_inspect.read(_swap(at))
        if job.verdict in ("failed", "degraded") or len(job.hosts) != 3:
            alarms[at] = job.verdict, [host.name for host in job.hosts], [finding.summary for finding in job.findings]
    assert alarms == {}
