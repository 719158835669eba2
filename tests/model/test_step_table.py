"""Steps and bursts that wait until somebody asks for processes are those that lines give one by one."""

from __future__ import annotations

import pickle
from math import inf

import fuzz_columns
import pytest

from nccl_inspect.model.fold import step_table

INIT = b"vm:%d:%d [0] NCCL INFO comm 0x%d rank 0 nranks 8 cudaDev 0 busId 10 commId 0x1 - Init %b"
EDGE = b"vm:%d:%d [0] NCCL INFO Channel %02d/0 : 0[0] -> %d[%d] via P2P/CUMEM"
INTERFACE = b"vm:%d:%d [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>"


def edges(pid: int, tid: int, peer: int, channels: range = range(4)) -> list[bytes]:
    return [EDGE % (pid, tid, channel, peer, peer) for channel in channels]


def of_threads(begin: bytes, peer: int) -> list[bytes]:
    """What two processes print, one of them with two threads, line by line in turn."""
    threads = ((7, 7), (7, 8), (9, 9))
    columns = [[INIT % (pid, tid, tid, begin), *edges(pid, tid, peer)] for pid, tid in threads]
    return [line for lines in zip(*columns, strict=True) for line in lines]


BLOCKS = {
    "bursts that go on": [edges(7, 7, 1), edges(7, 7, 2), edges(7, 7, 1), of_threads(b"COMPLETE", 3)],
    "several threads": [of_threads(b"START", 1), of_threads(b"COMPLETE", 2), edges(7, 8, 3), of_threads(b"START", 4)],
    "a process that begins anew": [edges(7, 7, 1), [INTERFACE % (7, 7)], edges(7, 7, 1), edges(7, 8, 1)],
    "lines that are read one by one": [
        of_threads(b"START", 1),
        [*edges(7, 7, 1), *edges(7, 7, 1, range(64, 70)), *edges(9, 9, 1)],
        edges(7, 7, 2),
    ],
    "nothing in columns": [edges(7, 7, 1, range(64, 70)), edges(7, 7, 2, range(64, 70)), edges(7, 7, 2)],
}


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("most", [0, 8, 1 << 17])
def test_what_waits_is_the_same(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_table, "MANY", most)
    assert fuzz_columns.difference(BLOCKS[name]) is None


@pytest.mark.parametrize("at", range(1, 4))
@pytest.mark.parametrize("name", BLOCKS)
def test_folds_merge_and_are_handed_over_with_what_waits(name: str, at: int) -> None:
    blocks = BLOCKS[name]
    whole = fuzz_columns.state(fuzz_columns.folded(blocks, inf))
    fold, later = fuzz_columns.folded(blocks[:at], 0), fuzz_columns.folded(blocks[at:], 0)
    fold.merge(pickle.loads(pickle.dumps(later)))
    assert fuzz_columns.state(fold) == whole


def test_an_origin_of_its_own_is_made_when_somebody_asks() -> None:
    time = b"2026-11-20T23:13:%02d.%06dZ "
    timed = [time % (number // 60, number) + line for number, line in enumerate(of_threads(b"START", 1) * 4)]
    blocks = [timed[:30], timed[30:]]
    assert fuzz_columns.difference(blocks) is None
    steps = [step for log in fuzz_columns.folded(blocks, 0).processes.values() for step in log.steps]
    assert any(step.printed != step.origin for step in steps)
    assert all(step.printed.time == step.origin.time and step.printed.tid == step.origin.tid for step in steps)
