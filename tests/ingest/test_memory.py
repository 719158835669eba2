"""What was seen before: what comes again stays, everything else is forgotten in time."""

from __future__ import annotations

from nccl_inspect.ingest.lines.generations import Memory


def _look_up(memory: Memory[int], seen: bytes, meaning: int) -> bool:
    """Whether it was known; it is remembered in any case."""
    if seen in memory.young or memory.recall(seen) is not None:
        return True
    memory.keep(seen, meaning)
    return False


def test_what_comes_again_and_again_stays() -> None:
    memory: Memory[int] = Memory(entries=10, size=1000)
    assert not _look_up(memory, b"often", 0)
    for number in range(100):
        assert not _look_up(memory, b"once %d" % number, number)
        if number % 5 == 0:
            assert _look_up(memory, b"often", 0)


def test_what_does_not_come_again_is_forgotten() -> None:
    memory: Memory[int] = Memory(entries=10, size=1000)
    for number in range(100):
        memory.keep(b"%d" % number, number)
    assert memory.young == {b"%d" % number: number for number in range(90, 100)}
    assert memory.recall(b"79") is None
    assert memory.recall(b"80") == 80


def test_few_long_ones_are_remembered() -> None:
    memory: Memory[int] = Memory(entries=1000, size=1000)
    for number in range(100):
        memory.keep(b"%d" % number * 100, number)
        assert memory.size <= 2000
