"""Torn lines are put together again, and whole ones are left alone."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_inspect.ingest.lines.torn import Rejoiner, rejoined

BLOCK = 4096


def rejoin(data: bytes, chunk: int = 1 << 20) -> tuple[list[bytes], Rejoiner]:
    rejoiner = Rejoiner()
    parts = [data[start : start + chunk] for start in range(0, len(data), chunk)]
    return [one.line for lines in rejoined(parts, rejoiner) for one in lines], rejoiner


def outputs(processes: int, lines: int) -> list[list[bytes]]:
    """What each process prints."""
    return [
        [
            f"vm:{pid}:{pid + 70} [{pid % 8}] NCCL INFO line {number} of {pid} {'x' * (number % 90)}".encode()
            for number in range(lines)
        ]
        for pid in range(5000, 5000 + processes)
    ]


def torn(printed: list[list[bytes]], seed: int) -> bytes:
    """The blocks of several processes with block-buffered standard output, one after the other."""
    streams = [b"".join(line + b"\n" for line in lines) for lines in printed]
    blocks = [[stream[at : at + BLOCK] for at in range(0, len(stream), BLOCK)] for stream in streams]
    order = [index for index, parts in enumerate(blocks) for _ in parts]
    random.Random(seed).shuffle(order)
    return b"".join(blocks[index].pop(0) for index in order)


@given(st.integers(0, 1000), st.integers(2, 6), st.sampled_from([100, 4095, 4096, 5000, 1 << 20]))
def test_blocks_of_several_processes_give_the_lines_of_each(seed: int, processes: int, chunk: int) -> None:
    printed = outputs(processes, 150)
    data = torn(printed, seed)
    lines, rejoiner = rejoin(data, chunk)
    assert sorted(lines) == sorted(line for own in printed for line in own)
    for own in printed:
        assert [line for line in lines if line in set(own)] == own
    assert rejoiner.lines == data.count(b"\n")


PREFIX = b"[2026-11-21 19:33:31] node-0:5599:5599 [1] misc/ibvwrap.cc:173 NCCL WARN "


@pytest.mark.parametrize("prefix", [PREFIX, PREFIX[22:41] + b"NCCL INFO "], ids=["with time", "without"])
@pytest.mark.parametrize("waiting", [True, False], ids=["a head waits", "no head waits"])
def test_a_block_may_end_anywhere_in_a_prefix(prefix: bytes, waiting: bool) -> None:
    other = b"node-0:7711:7711 [3] NCCL INFO "
    for cut in range(1, len(prefix)):
        begin, fill = prefix + b"began ", BLOCK - cut - 1
        first = begin + b"x" * (fill - len(begin)) + b"\n" + prefix[:cut]
        rest = prefix[cut:] + b"goes on\n" + prefix + b"ends\n"
        between = other + b"y" * (BLOCK - len(other) - (0 if waiting else 1)) + (b"" if waiting else b"\n")
        lines, _ = rejoin(first + between + rest + (b"z\n" if waiting else b""))
        assert prefix + b"goes on" in lines, cut
        assert prefix + b"ends" in lines, cut


def test_whole_lines_of_several_processes_stay_as_they_are() -> None:
    printed = outputs(5, 200)
    mixed = [line for group in zip(*printed, strict=True) for line in group]
    lines, rejoiner = rejoin(b"\n".join(mixed) + b"\n")
    assert lines == mixed
    assert rejoiner.repaired == 0


def test_a_line_has_the_number_of_its_beginning() -> None:
    printed = outputs(2, 150)
    data = torn(printed, 1)
    physical = data.split(b"\n")
    rejoiner = Rejoiner()
    found = [one for lines in rejoined([data], rejoiner) for one in lines]
    broken = [one for one in found if one.line not in physical[one.number - 1]]
    assert rejoiner.repaired > 0
    assert len(broken) <= rejoiner.repaired  # one was cut just before its line end
    assert all(
        physical[one.number - 1].startswith(one.line[:2]) or one.line[:2] in physical[one.number - 1] for one in broken
    )


def test_lines_of_other_programs_are_kept() -> None:
    data = b"a training line\n" + b"vm:1:1 [0] NCCL INFO cudaDriverVersion 13000\n" * 200 + b"another one\n"
    lines, _ = rejoin(data)
    assert b"\n".join(lines) + b"\n" == data
