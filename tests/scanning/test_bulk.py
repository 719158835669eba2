"""Reading blocks gives what reading line by line gives, whatever the lines are and however they are mixed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from itertools import islice

import fuzz_blocks
import pytest
import sample_data
from hypothesis import example, given
from hypothesis import strategies as st

from nccl_inspect.ingest.sources.blocks import Lines
from nccl_inspect.model.fold import Fold
from nccl_inspect.pipeline.reader import Reader
from nccl_inspect.scanning import bulk
from nccl_inspect.scanning.found import Repeated


def difference(blocks: Sequence[list[bytes]]) -> str | None:
    """Return what blocks give otherwise than their lines one by one."""
    some = [block for block in blocks if block]
    return fuzz_blocks.reading_difference(fuzz_blocks.fold_log(some), fuzz_blocks.fold_log(some, by_line=True))


@cache
def pool() -> list[bytes]:
    """Return lines of all kinds: of every sample log, wrapped, damaged, of other programs."""
    lines = [line for name in sample_data.names() for data in sample_data.contents(name) for line in data.split(b"\n")]
    lines = lines[:: max(1, len(lines) // 4000)]
    wrapped = [b"[pod/llama-0] " + line for line in lines[::50]]
    wrapped += [b"2026-11-20T23:13:07.071868123Z stdout P " + line for line in lines[::500]]
    wrapped += [b"2026-11-20T23:13:07.071868123Z stdout F " + line for line in lines[::500]]
    wrapped += [b"\x1b[32m" + line + b"\x1b[0m" for line in lines[::500]]
    wrapped += [b" 5%|###   |\r" + line for line in lines[::500]]
    others = [b"step %d loss %.3f" % (step, 1 / step) for step in range(1, 200)]
    others += [
        b"",
        b"NC1CL INFO nothing",
        b"an NCCL line that is none",
        b"NCCL version 2.21.5+cuda12.4",
        b"[rank0]: Last error:",
        b"[rank0]: socketProgress: Connection closed by remote peer vm<4321>",
        b"Last error:",
        b"Cuda failure 'out of memory'",
        b"vm NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        b"vm:1:1 [0] NCCL INFO Channel 100/0 : 0[0] -> 1[1] via P2P/CUMEM",
        b"vm:1:1 [0] NCCL INFO Channel 1/0 : 0[0] -> 1[1] via P2P/CUMEM",
        b"vm:1:1 [0] NCCL WARN Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM",
        b"vm:1:1 [0] NCCL INFO Channel 99/0 : 0[0] -> 1[1] via P2P/CUMEM",
    ]
    return lines + wrapped + others * 3


LINES = st.integers(0, 1 << 30).map(lambda number: pool()[number % len(pool())])
CHANNELS = st.builds(
    lambda device, channel, tail: b"vm:7:%d [%d] NCCL INFO Channel %02d%b" % (7 + device, device, channel, tail),
    st.integers(0, 1),
    st.integers(0, 130),
    st.sampled_from(
        [
            b"/0 : 0[0] -> 1[1] via P2P/CUMEM",
            b"/1 : 0[0] -> 1[1] via P2P/CUMEM/read",
            b" : 1[18010] -> 0[18020] via direct shared memory",
            b"/0 : 3[1] -> 4[0] [send] via NET/AWS Libfabric/1(2)/GDRDMA/Shared",
            b"/02 :    0   1",
            b"/0 : 0[0] -> 99999999[1] via P2P/CUMEM",
        ]
    ),
)
BLOCKS = st.lists(
    st.one_of(st.lists(LINES, max_size=60), st.lists(CHANNELS, max_size=60), st.lists(LINES | CHANNELS, max_size=60)),
    max_size=5,
)


@given(blocks=BLOCKS)
def test_blocks_give_what_lines_give(blocks: list[list[bytes]]) -> None:
    assert difference(blocks) is None


COLLECTED = (
    "{time}Z ",
    "{time}Z stdout F ",
    "[{day} {clock}] ",
    "[pod/llama-0] {time}+02:00 ",
    "{day} {clock} | INFO | ",
)


def collect_events(lines: Sequence[bytes], form: str, start: datetime, step: timedelta) -> list[bytes]:
    """Return the lines as a collector passes them on, each with its time."""
    times = (start + number * step for number in range(len(lines)))
    return [
        form.format(time=time.isoformat(), day=time.date(), clock=time.time()).encode() + line
        for time, line in zip(times, lines, strict=True)
    ]


@given(
    block=st.lists(LINES | CHANNELS, min_size=1, max_size=80),
    form=st.sampled_from(COLLECTED),
    start=st.datetimes(datetime(2026, 11, 20, 23, 59, 59), datetime(2026, 11, 21)),
    step=st.sampled_from([timedelta(0), timedelta(microseconds=37), timedelta(seconds=1), timedelta(hours=1)]),
)
@example(
    block=[
        b"vm:7:8 [1] NCCL INFO Channel 00/0 : 0[0] -> 99999999[1] via P2P/CUMEM",  # refused: the burst begins later
        b"vm:7:7 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        b"vm:7:8 [1] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
    ],
    form=COLLECTED[0],
    start=datetime(2026, 11, 20, 23, 59, 59),
    step=timedelta(0),
)
def test_lines_with_times_give_what_they_give_one_by_one(
    block: list[bytes], form: str, start: datetime, step: timedelta
) -> None:
    lines = collect_events(block * 3, form, start, step)
    blocks = [lines[: len(block)], lines[len(block) :]]
    assert difference(blocks) is None


def test_lines_with_times_that_were_run_together_keep_their_own_processes() -> None:
    line = b"vm:7:7 [0] NCCL INFO Channel %02d/0 : 0[0] -> 1[1] via P2P/CUMEM"
    other = line.replace(b"vm:7:7 [0]", b"vm:8:8 [1]")
    block = [line % channel for channel in range(32)]
    block += [line % 32 + other % 32, *block]
    lines = collect_events(block, "{time}Z ", datetime(2026, 11, 20), timedelta(microseconds=37))
    assert difference([lines, lines]) is None


@pytest.mark.slow
@example(picked=[b" 5%|###   |\r[rank0]: loaded", b"step 1"], order=[0, 1] * 128)
@given(picked=st.lists(LINES, min_size=1, max_size=6), order=st.lists(st.integers(0, 5), min_size=256, max_size=600))
def test_a_flood_gives_what_its_lines_give(picked: list[bytes], order: list[int]) -> None:
    assert difference([picked, [picked[number % len(picked)] for number in order]]) is None


@given(
    kinds=st.lists(
        st.sampled_from([b"", b"one", b"two \xff\xfe", b"the third, which is longer"]), min_size=1, max_size=6
    ),
    times=st.integers(64, 400),
    rest=st.lists(st.sampled_from([b"", b"one", b"another"]), max_size=3),
)
def test_lines_that_come_in_turn_are_counted(kinds: list[bytes], times: int, rest: list[bytes]) -> None:
    lines = kinds * times * 20 + rest
    repeats = bulk.find_repeats(Lines(lines, 0))
    assert repeats is not None
    assert (repeats.numbers, repeats.size) == (Counter(lines), len(lines))
    begin, end = (
        bulk.find_first(repeats.cycle, repeats.numbers),
        bulk.find_first(reversed(repeats.end), repeats.numbers),
    )
    assert begin == {line: lines.index(line) for line in {*lines}}
    assert end == {line: lines[::-1].index(line) for line in {*lines}}
    last = [(back, line) for back, line in enumerate(reversed(lines)) if line in (b"", b"one")]
    assert list(islice(repeats.last_of({b"", b"one"}), 100)) == last[:100]


def test_a_flood_is_counted_and_may_hold_lines_of_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    take = Fold.take_repeated

    def note_taken(fold: Fold, found: Sequence[Repeated]) -> None:
        taken.append(sum(one.number for one in found))
        take(fold, found)

    monkeypatch.setattr(Fold, "take_repeated", note_taken)
    warning = b"vm:7:7 [0] misc/socket.cc:46 NCCL WARN Connection closed by peer \xfe\x8a"
    turn = [b"", warning, b"vm:7:7 [0] NCCL INFO x.cc:1 -> 6", b"step 1"]
    assert difference([turn, turn * 500, [*turn * 300, b"step 2", *turn]]) is None
    assert taken == [2 * 500, 2 * 301]
    said = [warning, warning[:-2], *(line.replace(b"vm:7:7", b"vm:8:8") for line in (warning, warning[:-2]))]
    assert difference([said[::3], said * 500]) is None, "each said one of the two before"
    assert taken[2:] == [4 * 500]


TRACEBACKS = st.builds(
    lambda front, lines: [front + line for line in lines],
    st.sampled_from([b"", b"[rank1]: ", b"[pod/llama-0] ", b"2026-11-20T23:13:07.071868123Z ", b"1: "]),
    st.lists(
        st.sampled_from(
            [
                b"Traceback (most recent call last):",
                b'  File "/app/train.py", line 12, in load',
                b"    raise Failed('loss')",
                b"trainer.Failed: loss is nan",
                b"KeyboardInterrupt",
                b"the end",
            ]
        ),
        max_size=6,
    ),
)


@pytest.mark.slow
@given(
    picked=st.lists(st.tuples(st.integers(0, 1200), LINES.map(lambda line: [line]) | TRACEBACKS), max_size=8),
    size=st.integers(300, 1200),
)
def test_few_lines_among_many_of_other_programs_are_found(picked: list[tuple[int, list[bytes]]], size: int) -> None:
    blocks = []
    for _ in range(2):
        block = [b"step %d: loss %.4f" % (step, 1 / (step + 1)) for step in range(size)]
        for at, lines in picked:
            block[at:at] = lines
        blocks.append(block)
    assert difference(blocks) is None


def test_a_flood_is_folded_as_its_lines_are() -> None:
    """A block of the same lines of several threads, at last with more different ones than are kept apart."""
    spam = [
        b"vm:7:%d [0] misc/socket.cc:46 NCCL WARN Connection closed by peer %d" % (7 + number % 3, number % 5)
        for number in range(3000)
    ]
    spam += [b"vm:8:8 [1] NCCL INFO misc/socket.cc:749 -> 6", b"vm:8:8 [1] misc/x.cc:1 NCCL WARN unheard of"] * 1500
    head = [*spam[:20], *spam[-2:]]
    whole = sample_data.fold_sources([("log", head), ("log2", spam)])
    pieces = Reader()
    for name, lines in (("log", head), ("log2", spam)):
        pieces.fold.start(name)
        for start in range(0, len(lines), 10):
            pieces.feed(lines[start : start + 10])
    assert fuzz_blocks.reading_difference(whole, pieces.fold) is None
    assert whole.sources[1].counts == pieces.fold.sources[1].counts
