"""Reading blocks gives what reading line by line gives, whatever lines or JSON objects they hold, wherever they end."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from typing import Any

import fuzz_blocks
import pytest
import sample_data
from few_examples import FEW
from hypothesis import given
from hypothesis import strategies as st

import nccl_inspect
from nccl_inspect.model import resolve

CONNECTS = b"vm:7:%d [0] NCCL INFO Channel %02d/%d : %d[%d] -> %d[%d]%b via %b"


@FEW
@given(seed=st.integers(0, 1 << 32))
def test_blocks_give_what_lines_give(seed: int) -> None:
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
