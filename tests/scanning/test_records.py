"""JSON objects of a collector are read in columns, and what that finds is what reading them line by line finds."""

import json
import random

import fuzz_columns
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_inspect.scanning import records

LINE = "vm-%d:7:7 [0] NCCL INFO Channel 0%d/0 : 0[0] -> 1[1] via P2P/CUMEM\n"


def docker(text: str, second: int, stream: str = "stdout") -> bytes:
    record = {"log": text, "stream": stream, "time": f"2026-11-20T23:13:{second:02}.25Z"}
    return json.dumps(record, separators=(",", ":")).encode()


def test_objects_of_one_form_are_taken_apart_at_once() -> None:
    block = [docker(LINE % (number, channel), number) for number in range(20) for channel in range(8)]
    form = records.form_of(block[0])
    assert form is not None
    inner = form.lines_in(b"\n".join([*block, b"step 7"]))
    assert inner is not None
    assert inner.count(b" NCCL INFO ") == len(block)
    assert inner.split(b"\n")[-1] == b""
    fold = fuzz_columns.folded([block[:1], [*block[1:], b"step 7"]], 0)
    assert {log.opening.time for log in fold.processes.values()} == {f"2026-11-20T23:13:{n:02}.25Z" for n in range(20)}


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_objects_give_what_lines_give(seed: int) -> None:
    chance = random.Random(seed)
    blocks = fuzz_columns.log(chance)
    change = chance.choice(fuzz_columns.CHANGES)
    objects = [change(fuzz_columns.objects(block, chance), chance) for block in blocks]
    assert fuzz_columns.difference([[line.replace(b"\n", b"") for line in block] for block in objects]) is None


@pytest.mark.parametrize(
    "line",
    [
        docker("step 1\n", 1),  # no line of NCCL, so that its reader may read another member of such a line
        docker(LINE % (0, 0), 1).replace(b"stdout", b"2026-11-20T23:13:01.25Z"),  # which of the two is the time?
        docker(LINE % (0, 0), 1).replace(b"2026-11-20T23:13:01.25Z", b"1795475587"),
        docker('vm:7:7 [0] NCCL INFO "P2P"\n', 1),
        docker("two\n" + LINE % (0, 0), 1),
        b'{"log":"vm:7:7 [0] NCCL INFO',
    ],
)
def test_other_objects_have_no_form(line: bytes) -> None:
    assert records.form_of(line) is None
