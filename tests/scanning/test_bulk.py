"""Reading blocks gives what reading line by line gives, whatever the lines are and however they are mixed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from itertools import islice, product
from typing import Any

import fuzz_blocks
import pytest
import sample_data
from call_count import calls_by_function
from few_examples import FEW
from hypothesis import example, given
from hypothesis import strategies as st

import nccl_inspect
from nccl_inspect.grammar import engine
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.sources.blocks import Lines
from nccl_inspect.model import resolve
from nccl_inspect.model.fold import Fold
from nccl_inspect.pipeline.reader import Reader
from nccl_inspect.scanning import bulk
from nccl_inspect.scanning.bulk import Sieve
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


# --- Whatever lines or JSON objects blocks hold, wherever they are cut

CONNECTS = b"vm:7:%d [0] NCCL INFO Channel %02d/%d : %d[%d] -> %d[%d]%b via %b"


@FEW
@given(seed=st.integers(0, 1 << 32))
def test_made_up_blocks_give_what_lines_give(seed: int) -> None:
    assert fuzz_blocks.difference(fuzz_blocks.log(random.Random(seed))) is None


@pytest.mark.slow
def test_samples_are_the_same_job() -> None:
    differ = []
    for name in sample_data.names():
        for content in sample_data.contents(name):
            blocks = [content.split(b"\n")]
            jobs = [resolve.resolve(fuzz_blocks.fold_log(blocks, by_line)).to_dict() for by_line in (False, True)]
            if json.dumps(jobs[0], default=str) != json.dumps(jobs[1], default=str):
                differ.append(name)
    assert not differ


LIMITS = [
    [CONNECTS % (7, channel, 0, 0, 0, 1, 1, b"", b"P2P/CUMEM") for channel in (0, 1, 63, 64, 99)],
    [CONNECTS % (7, 0, 0, rank, 0, 1, 1, b" [send]", b"NET/IB/0") for rank in (9, 99, 999999, 1048575, 9999999)],
    [CONNECTS % (7, 0, 0, 0, 0, 1, 1, b"", way) for way in (b"NET/IBext_v7/0", b"NET/IBext_v8/0", b"P2P/IPC")],
    [b"vm:7:7 [0] NCCL INFO Channel 00/%b : 0[0] -> 1[1] via P2P/CUMEM" % conn for conn in (b"0", b"00", b"10", b"01")],
    [b"vm:7:7 [0] NCCL INFO Channel 00 : 0[%b] -> 1[1] via P2P/IPC" % bus for bus in (b"b7000", b"07000", b"1", b"01")],
    [b"vm:7:7 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/indirect/%d[2]" % rank for rank in (2, 3, 2)],
    [b"vm:7:7 [0] NCCL INFO Channel 00/0 : -1[0] -> 1[1] via P2P/CUMEM"],
    [b"\xff\xfe:7:7 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", b"", b" NCCL INFO ", b"NCCL INFO x"],
]


def test_numbers_at_their_limits() -> None:
    assert not [lines for lines in LIMITS if fuzz_blocks.difference([lines * 3, lines])]


NUMBERS = tuple(b"%d" % number for number in (1, 2, 9, 0, 7, 10, 12, 23, 98, 99, -1, -2, -3, -10, -12, -13, -14))
POINTERS = tuple(b"0x7f01 0xabcd 0x0001 0x12ab 0xA2ab ax12ab 0x12ag (nil) 0x1 0xa 0x0 0xf".split())


TEXTS: list[tuple[bytes, tuple[bytes, ...]]] = [
    (b"comm %b rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0", POINTERS),
    (b"comm 0x5 rank %b nRanks 99 nNodes 1 localRanks 8 localRank 0 MNNVL 0", (*NUMBERS, b"01", b"-0", b"-01")),
    (
        b"ncclCommSplit comm 0x5 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId %b parent 0x4 color 7 key 0- Init START",
        (b"60", b"b0", b"0a", b"101d0", b"fffff", b"00000", b"g0", b"B0"),
    ),
    (
        b"ncclCommSplit comm 0x5 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1 parent 0x4 color %b key 0- Init START",
        (*NUMBERS, b"01", b"-0", b"-01"),
    ),
    (
        b"Init timings - ncclCommSplit: rank 0 nranks 4 total %b (kernels 0.00, alloc 0.00, bootstrap 0.00, "
        b"allgathers 0.02, topo 0.01, graphs 0.00, connections 0.00, rest 2.75)",
        (b"0.29", b"2.79", b"9.99", b"0.07", b"1.10", b"12.79", b"98.76", b"01.10", b"10.07", b"1e.10", b"-0.00"),
    ),
    (
        "NET/Réseau : GPU Direct RDMA Enabled for GPU %b / HCA 0 (distance 2 < 3), read 0".encode(),
        (b"b7000", b"b8000", b"07000", b"0700a", b"1"),
    ),
    (
        b"Bootstrap timings total 0.%b (create 0.000045, send 0.000113, recv 0.%b, ring 0.016578, delay 0.000001)",
        (b"123456", b"999999", b"000001", b"000000", b"100000", b"12345", b"1234567"),
    ),
    (b"[Proxy Service] Device %b CPU core 3", (*NUMBERS, b"01", b"-0", b"-01")),
    (b"Trees [0] %b/-1/-1->1->0 [1] -1/-1/-1->1->0", (*NUMBERS, b"01", b"-0", b"-01")),
    (b"Channel %b/16 : 0 1 2 3", (b"00", b"01", b"09", b"15", b"99", b"100", b"001", b"1")),
    (b"NET/IB : Using [0]mlx5_%b:1/RoCE [RO]; OOB eth0:10.0.0.%b<0>", (b"1", b"2", b"3", b"a", b"b", b"0", b"9")),
]


def test_texts_that_differ_in_numbers() -> None:
    wrong = []
    for text, values in TEXTS:
        some = enumerate((*values, *values[:4]))
        lines = [b"vm:%d:7 [0] NCCL INFO " % pid + text.replace(b"%b", value) for pid, value in some]
        blocks = ([lines, lines[::-1]], [lines[::-1] * 3])
        wrong += [text for one in blocks if fuzz_blocks.difference(one)]
    assert not wrong


FORMS = [
    *(b"[2026-11-20 %02d:%02d:%02d] ", b"2026-11-20T%02d:%02d:%02d.1234Z stdout F "),
    *(b"[pod/llama] 2026-11-20T%02d:%02d:%02dZ ", b"%02d:%02d:%02d,789 ", b"17000%02d%02d%d.5 "),
]
CLOCKS = [(12, 0, 0), (23, 59, 59), (24, 0, 0), (12, 60, 7), (7, 7, 61)]
FRONTS = [b"[pod/llama-0/pytorch] 2026-11-20T23:13:07.%06dZ ", b"worker-%d | ", b"job %d says "]
BEFORE: list[list[bytes]] = [[], [b"step 1", b"step 2"], [b'{"rank": 0}']]


def pairs(some: Sequence[Any], others: Sequence[Any]) -> pytest.MarkDecorator:
    """Give a test each of both once, or in slow tests each pair."""
    every = pytest.param([*product(some, others)], marks=pytest.mark.slow)
    return pytest.mark.parametrize("tried", [[*zip(some, others, strict=True)], every], ids=["few", "all"])


@pairs(FORMS, CLOCKS)
def test_times_of_any_resolution(tried: list[tuple[bytes, tuple[int, int, int]]]) -> None:
    """Whether most lines have the same time, or each another one, or one that no clock shows."""
    text = b"vm:%d:7 [0] NCCL INFO Channel 00/0 : %d[0] -> 1[1] via P2P/CUMEM"
    for form, clock in tried:
        same = [form % clock + text % (number % 3, number) for number in range(40)]
        differ = [form % (number % 30, number % 70, number) + text % (number % 3, number) for number in range(10, 50)]
        blocks = [same, same + differ, [line[20:] for line in same] + differ]
        assert fuzz_blocks.difference(blocks) is None, (form, clock)


@pairs(FRONTS, BEFORE)
def test_the_first_block_of_wrapped_lines(tried: list[tuple[bytes, list[bytes]]]) -> None:
    """What is in front of lines changes how those after the first one are read."""
    lines = [CONNECTS % (7, at % 9, 0, 0, 0, 1, 1, b"", b"P2P/CUMEM") for at in range(40)]
    for front, before in tried:
        wrapped = [front % at + line for at, line in enumerate([*before, *lines])]
        for first in (wrapped, [*before, *wrapped], wrapped[: len(before) + 1]):
            assert fuzz_blocks.difference([first, lines, wrapped]) is None, (front, before)


def test_the_last_line_of_a_burst_has_its_own_time() -> None:
    line = b"2026-11-20 10:00:%02d vm:7:7 [0] NCCL INFO Channel %02d/0 : %d[%d] -> 9[1] via P2P/CUMEM"
    block = [line % (second, channel, peer, peer) for second, peer in ((2, 4), (38, 5)) for channel in range(8)]
    fold = fuzz_blocks.fold_log([block])
    assert [log.closing.time for log in fold.processes.values()] == ["2026-11-20 10:00:38"]
    assert fuzz_blocks.difference([block]) is None


def test_a_burst_ends_where_its_process_begins_anew() -> None:
    connects = [CONNECTS % (tid, channel, 0, 0, 0, 1, 1, b"", b"P2P/CUMEM") for channel in (0, 1) for tid in (8, 9)]
    anew = b"vm:7:7 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.7<0>"
    step = b"vm:7:8 [0] NCCL INFO Connected all rings"
    blocks = [[anew, *connects, step, *connects, anew, *connects], [*connects, anew, *connects, step], connects]
    assert fuzz_blocks.difference(blocks) is None


def test_a_short_log_does_without_numpy() -> None:
    code = "import sys, nccl_inspect; nccl_inspect.read(sys.argv[1]); assert 'numpy' not in sys.modules"
    file = sample_data.files("p2p-nvlink-8gpu")[0]
    subprocess.run([sys.executable, "-c", code, str(file)], check=True)


# --- JSON objects of a collector

LINE = "vm-%d:7:7 [0] NCCL INFO Channel 0%d/0 : 0[0] -> 1[1] via P2P/CUMEM\n"


def docker(text: str, second: int, stream: str = "stdout") -> bytes:
    record = {"log": text, "stream": stream, "time": f"2026-11-20T23:13:{second:02}.25Z"}
    return json.dumps(record, separators=(",", ":")).encode()


def add_pod(text: str, second: int, pod: str) -> bytes:
    fraction = f".{second}" if second % 7 else ""
    record = {"time": f"2026-11-20T23:13:{second:02}{fraction}Z", "log": text, "kubernetes": {"pod_name": pod}}
    return json.dumps(record, separators=(",", ":")).encode()


def test_objects_of_one_form() -> None:
    block = [docker(LINE % (number, channel), number) for number in range(20) for channel in range(8)]
    fold = fuzz_blocks.fold_log([[*block, b"step 7", block[0]]])
    assert {log.opening.time for log in fold.processes.values()} == {f"2026-11-20T23:13:{n:02}.25Z" for n in range(20)}


def test_objects_of_several_pods_in_turn() -> None:
    block = [
        add_pod(LINE % (number % 12, channel), number, f"llama-{number % 12}")
        for number in range(60)
        for channel in (0, 1)
    ]
    fold = fuzz_blocks.fold_log([block])
    assert {process.apart for process in fold.processes} == {f"llama-{number}" for number in range(12)}
    assert fuzz_blocks.difference([block]) is None
    assert fuzz_blocks.difference([block[:50], block[50:]]) is None


def test_lines_in_objects_keep_their_own_times() -> None:
    own = "[2026-11-20 23:13:%02d.5] vm:%d:7 [0] NCCL INFO ncclCommInitRank comm 0x%x rank %d nranks 40 "
    about = "cudaDev 0 nvmlDev 0 busId 10 commId 0x1 - Init START\n"
    block = [docker(own % (n, 7 + n, 64 + n, n) + about, 50 - n) for n in range(40)]
    fold = fuzz_blocks.fold_log([[*block, block[0]]])
    times = {step.printed.time for log in fold.processes.values() for step in log.steps}
    assert times == {f"2026-11-20 23:13:{n:02}.5" for n in range(40)}
    assert fuzz_blocks.difference([block]) is None


@pytest.mark.slow
@FEW
@given(seed=st.integers(0, 1 << 32))
def test_objects_give_what_lines_give(seed: int) -> None:
    chance = random.Random(seed)
    blocks = fuzz_blocks.log(chance)
    change = chance.choice(fuzz_blocks.CHANGES)
    objects = [change(fuzz_blocks.objects(block, chance), chance) for block in blocks]
    assert fuzz_blocks.difference([[line.replace(b"\n", b"") for line in block] for block in objects]) is None


OTHERS = [
    docker("step 1\n", 1),  # no line of NCCL, so that its reader may read another member of such a line
    docker(LINE % (0, 0), 1).replace(b"stdout", b"2026-11-20T23:13:01.25Z"),  # which of the two is the time?
    docker(LINE % (0, 0), 1).replace(b"2026-11-20T23:13:01.25Z", b"1795475587"),
    docker('vm:7:7 [0] NCCL INFO "P2P"\n', 1),
    docker("two\n" + LINE % (0, 0), 1),
    b'{"log":"vm:7:7 [0] NCCL INFO',
]


def test_objects_of_other_forms_give_what_lines_give() -> None:
    block = [docker(LINE % (number, 1), number) for number in range(20)]
    assert not [line for line in OTHERS if fuzz_blocks.difference([[*block, line, *block], [line] * 20])]


def test_two_lines_in_one_record_are_damage() -> None:
    line = "node-a:1:1 [0] NCCL INFO cudaDriverVersion 12040"
    torn = "node-a:1:1 [0] NCCL INFO Bootstrap : Using eth0" + line
    records = [
        json.dumps({"log": f"{one}\n", "stream": "stdout", "time": "2026-11-20T23:13:07Z"}) for one in (line, torn)
    ]
    (source,) = nccl_inspect.read(("\n".join(records) + "\n").encode()).sources
    assert (source.nccl_lines, source.damaged_lines) == (2, 1)


# --- Lines of other programs that are passed over

_STEP = b"[2026-11-20 10:00:%02d] step=%d loss=0.%d"
_NCCL = b"vm:1:1 [0] NCCL INFO cudaDriverVersion 13000"


def _text(*others: bytes) -> bytes:
    lines = [_STEP % (number % 60, number, number * 7) for number in range(1000)]
    lines[500:500] = [_NCCL, *others, _STEP % (1, 2, 3), _NCCL]
    return b"\n".join(lines)


def _sieve() -> Sieve:
    return Sieve(lambda: (*engine.load_grammar().signs(), *envelopes.SIGNS_OF_PARTIALS))


def test_what_means_nothing_is_not_picked() -> None:
    sieve = _sieve()
    for _ in range(3):
        picked = sieve.pick_lines(_text())
        assert [line for _, line in picked.lines] == [_NCCL, _NCCL]
        assert [place for place, _ in picked.lines] == [500, 502]


def test_lines_that_never_look_the_same_are_compared() -> None:
    sieve = _sieve()
    words = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    for number in range(len(words)):
        picked = sieve.pick_lines(_text(b"epoch " + words[: number + 1]))
        assert [line for _, line in picked.lines] == [_NCCL, _NCCL]


def _vary_line(*others: bytes) -> bytes:
    """Return a block of lines of many letters, no two of which look the same."""
    chance = random.Random(3)
    lines = [b"".join((b'{"payload": "', b64encode(chance.randbytes(60)), b'"}')) for _ in range(8000)]
    lines[4000:4000] = [_NCCL, *others, lines[0], _NCCL]
    return b"\n".join(lines)


@pytest.mark.slow
def test_texts_are_found_among_lines_that_never_look_the_same() -> None:
    learned, fresh = _sieve(), _sieve()
    learned.pick_lines(_vary_line())
    signs = sorted(engine.load_grammar().signs())
    for shift in range(4):
        text = b"-" * shift + _vary_line(*signs, b"NCCL version 2.28.9+cuda13.0", b"srun: error: task 3", b"", b"saved")
        by_grams = learned.pick_lines(text)
        assert "nccl_inspect.scanning.grams" in sys.modules
        assert by_grams.size == text.count(b"\n") + 1
        assert by_grams.lines == fresh.pick_lines(text).lines


def test_lines_of_all_letters_are_no_reason_to_compare_all_signs_with_them() -> None:
    sieve, text = _sieve(), _vary_line()
    calls = calls_by_function(lambda: sieve.pick_lines(text))
    assert sum(calls.values()) < 4 * text.count(b"\n")
