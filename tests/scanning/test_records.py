"""JSON objects of a collector: what is found in blocks of them is what reading them line by line finds."""

import json
import random

import fuzz_blocks
import pytest
from few_examples import FEW
from hypothesis import given
from hypothesis import strategies as st

import nccl_inspect

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
