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


@pytest.mark.parametrize("name", [b"NET/I", b"NET/Libfabrictrain-7f9c", b"NET/Libfabric0 : 3[3] -> 4[4]"])
def test_network_on_one_line_of_a_torn_log(name: bytes) -> None:
    line = _LINES[_CONNECTION].replace(b"NET/Libfabric", name)
    job = nccl_inspect.read(b"".join([*_LINES[:_CONNECTION], line, *_LINES[_CONNECTION + 1 :]]) + _glue_lines())
    assert [finding.rule for finding in job.findings if finding.severity != "info"] == []


@pytest.mark.slow
def test_lines_torn_anywhere() -> None:
    alarms = {}
    for at in range(20, len(_LINES[_CONNECTION]), 3):
        job = nccl_inspect.read(_swap(at))
        if job.verdict in ("failed", "degraded") or len(job.hosts) != 3:
            alarms[at] = job.verdict, [host.name for host in job.hosts], [finding.summary for finding in job.findings]
    assert alarms == {}


def test_error_on_a_line_that_was_put_together_is_possible() -> None:
    head, error = _LINES[_CONNECTION].split(b"INFO")[0], b"WARN NET/IB : Got async event : device fatal error\n"
    whole, glued = (nccl_inspect.read(b"".join([*_LINES, text, head, error])) for text in (b"", _LINES[0].rstrip()))
    found = [[f.confidence for f in job.findings if f.severity == "error"] for job in (whole, glued)]
    assert found[0]
    assert found[1] == ["possible"] * len(found[0])


def _glue_lines() -> bytes:
    """Return two lines that were run together, which shows that a log is torn."""
    return _LINES[0][:60] + _LINES[1]


def test_a_connection_cut_in_its_second_rank_is_that_of_the_process_that_printed_it() -> None:
    at = next(n for n in range(_CONNECTION, len(_LINES)) if b"[receive] via NET" in _LINES[n])
    before, after = _LINES[at].split(b" -> ")
    printed = before + b" -> " + after[: after.index(b"[")] + b":::MLLOG {}\n"
    pair = _LINES[at].split(b" : ")[1].split(b" [")[0]
    cut = [printed if n == at else line for n, line in enumerate(_LINES)]
    verdicts = [nccl_inspect.read(b"".join(lines)).verdict for lines in (_LINES, cut)]
    verdicts += [nccl_inspect.read(b"".join(line for line in cut if pair not in line)).verdict]
    assert verdicts == ["ok", "ok", "unknown"]
