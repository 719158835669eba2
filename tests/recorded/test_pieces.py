"""A piece of a sound log raises no alarm: what is not in it proves nothing."""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from repository import ROOT, TESTS

import nccl_inspect
from nccl_inspect.errors import NoInputError
from nccl_inspect.model.job import Job

SOUND = [
    ROOT / name
    for name, case in tomllib.loads((TESTS / "labels" / "cases_healthy.toml").read_text()).items()
    if case["verdict"] == "ok" and "platform" not in case
]
ENDED = {"time-limit-2.7"}
"""Logs with the line of who ended the job: without those before it, it seems to have hung."""
PIECES = 4
"""Of each log and way of cutting."""
_PREFIX = re.compile(rb"(?P<host>[^\s:]+):(?P<process>\d+:\d+ \[\d+\] )(?P<level>NCCL \w+ )")
_NETWORK = re.compile(rb"ENV|NET|Bootstrap|environment")

Cut = Callable[[list[bytes], random.Random], list[bytes]]


def _head(lines: list[bytes], chance: random.Random) -> list[bytes]:
    return lines[: chance.randrange(1, len(lines))]


def _tail(lines: list[bytes], chance: random.Random) -> list[bytes]:
    return lines[chance.randrange(1, len(lines)) :]


def _middle(lines: list[bytes], chance: random.Random) -> list[bytes]:
    begin, end = sorted(chance.sample(range(len(lines) + 1), 2))
    return lines[begin:end]


def _of_process(lines: list[bytes], chance: random.Random) -> list[bytes]:
    return _middle(_of_one(lines, chance, "process"), chance)


def _of_host(lines: list[bytes], chance: random.Random) -> list[bytes]:
    return _middle(_of_one(lines, chance, "host"), chance)


def _without_connections(lines: list[bytes], chance: random.Random) -> list[bytes]:
    return _middle([line for line in lines if b" via " not in line], chance)


def _about_the_network(lines: list[bytes], chance: random.Random) -> list[bytes]:
    return _middle([line for line in lines if _NETWORK.search(line)], chance)


def _without_host(lines: list[bytes], chance: random.Random) -> list[bytes]:
    return [_PREFIX.sub(rb"\g<process>\g<level>", line) for line in _middle(lines, chance)]


def _without_process(lines: list[bytes], chance: random.Random) -> list[bytes]:
    return [_PREFIX.sub(rb"\g<level>", line) for line in _middle(lines, chance)]


def _left_out(lines: list[bytes], chance: random.Random) -> list[bytes]:
    begin, end = sorted(chance.sample(range(len(lines) + 1), 2))
    return [*lines[:begin], b"...\n", *lines[end:]]


CUTS: tuple[Cut, ...] = (
    _head,
    _tail,
    _middle,
    _of_process,
    _of_host,
    _without_connections,
    _about_the_network,
    _without_host,
    _without_process,
    _left_out,
)


def _of_one(lines: list[bytes], chance: random.Random, what: str) -> list[bytes]:
    """The lines of a process, or of a host."""
    found = {line: known[what] for line in lines if (known := _PREFIX.search(line))}
    one = chance.choice(sorted(set(found.values())))
    return [line for line in lines if found.get(line) == one]


def _read(lines: Iterable[bytes]) -> Job | None:
    try:
        return nccl_inspect.read(b"".join(lines))
    except NoInputError:
        return None


def _alarms(job: Job) -> Iterator[str]:
    for finding in job.findings:
        if finding.severity != "info" and finding.confidence != "possible":
            yield f"{finding.rule}: {finding.summary}"


@pytest.mark.parametrize(
    ("log", "cut"),
    [
        pytest.param(log, cut, id=f"{log.stem}-{cut.__name__.strip('_')}")
        for log in SOUND
        for cut in CUTS
        if cut is not _left_out or log.stem not in ENDED
    ],
)
def test_a_piece_of_a_sound_log_raises_no_alarm(log: Path, cut: Cut) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    chance = random.Random(f"{log.stem} {cut.__name__}")
    for _ in range(PIECES):
        piece = cut(lines, chance)
        job = _read(piece)
        alarms = list(_alarms(job)) if job else []
        assert not alarms, b"".join(piece).decode()
