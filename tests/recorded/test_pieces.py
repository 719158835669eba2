"""A piece of a sound log raises no alarm: what is not in it proves nothing."""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Callable, Iterator
from itertools import product

import large_job
import pytest
from repository import ROOT, TESTS

import nccl_inspect
from nccl_inspect.errors import NoInputError

SOUND = [
    ROOT / name
    for name, case in tomllib.loads((TESTS / "labels" / "cases_healthy.toml").read_text()).items()
    if case["verdict"] == "ok" and "platform" not in case
]
ENDED = {"time-limit-2.7"}
"""Logs with the line of who ended the job: without those before it, it seems to have hung."""
_PREFIX = re.compile(rb"(?P<host>[^\s:]+):(?P<process>\d+:\d+ \[\d+\] )(?P<level>NCCL \w+ )")
_NETWORK = re.compile(rb"ENV|NET|Bootstrap|environment")

Lines = list[bytes]
Cut = Callable[[Lines, random.Random], Lines]


def middle(lines: Lines, chance: random.Random) -> Lines:
    begin, end = sorted(chance.sample(range(len(lines) + 1), 2))
    return lines[begin:end]


def left_out(lines: Lines, chance: random.Random) -> Lines:
    begin, end = sorted(chance.sample(range(len(lines) + 1), 2))
    return [*lines[:begin], b"...\n", *lines[end:]]


def from_one(lines: Lines, chance: random.Random, what: str) -> Lines:
    """Return a part of the lines of a process, or of a host."""
    found = {line: known[what] for line in lines if (known := _PREFIX.search(line))}
    one = chance.choice(sorted(set(found.values())))
    return middle([line for line in lines if found.get(line) == one], chance)


def replace_lines(lines: Lines, chance: random.Random, prefix: bytes) -> Lines:
    """Return a part of the log with less in front of each line."""
    return [_PREFIX.sub(prefix, line) for line in middle(lines, chance)]


CUTS: dict[str, Cut] = {
    "head": lambda lines, chance: lines[: chance.randrange(1, len(lines))],
    "tail": lambda lines, chance: lines[chance.randrange(1, len(lines)) :],
    "middle": middle,
    "of a process": lambda lines, chance: from_one(lines, chance, "process"),
    "of a host": lambda lines, chance: from_one(lines, chance, "host"),
    "without connections": lambda lines, chance: middle([line for line in lines if b" via " not in line], chance),
    "about the network": lambda lines, chance: middle([line for line in lines if _NETWORK.search(line)], chance),
    "without host": lambda lines, chance: replace_lines(lines, chance, rb"\g<process>\g<level>"),
    "without process": lambda lines, chance: replace_lines(lines, chance, rb"\g<level>"),
    "left out": left_out,
}


def alarms(lines: Lines) -> Iterator[str]:
    try:
        findings = nccl_inspect.read(b"".join(lines)).findings
    except NoInputError:
        return
    for finding in findings:
        if finding.severity != "info" and finding.confidence != "possible":
            yield f"{finding.rule}: {finding.summary}"


@pytest.mark.parametrize("step, pieces", [(3, 1), pytest.param(1, 4, marks=pytest.mark.slow)], ids=["few", "all"])
def test_a_piece_of_a_sound_log_raises_no_alarm(step: int, pieces: int) -> None:
    """Of each log and way of cutting some pieces by chance, always the same ones."""
    wrong = []
    for log, (name, cut) in [*product(SOUND, CUTS.items())][::step]:
        if cut is left_out and log.stem in ENDED:
            continue
        lines, chance = log.read_bytes().splitlines(keepends=True), random.Random(f"{log.stem} {name}")
        for _ in range(pieces):
            piece = cut(lines, chance)
            wrong += [f"{log}: {name}: {alarm}, by {len(piece)} lines from {piece[:1]}" for alarm in alarms(piece)]
    assert not wrong, "\n".join(wrong)


# --- what only torn lines of a healthy job state is damage, wherever they are torn, and not a finding

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
