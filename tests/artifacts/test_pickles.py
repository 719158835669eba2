"""Pickled dumps: read without running anything, whatever they ask for."""

from __future__ import annotations

import contextlib
import datetime
import io
import os
import pickle
import pickletools
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from dumps import LOG, MESH, entry
from hypothesis import given
from hypothesis import strategies as st

import nccl_inspect
from nccl_inspect.artifacts import flight_recorder, plain_pickle


class Hostile:
    """Asks whoever reads its pickle to run something."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], self.call[1:]


HOSTILE = (
    Hostile(os.system, "touch /tmp/never"),
    Hostile(eval, "1"),
    Hostile(getattr, "", "join"),
    {"entries": [Hostile(exec, "")]},
    datetime.timedelta(1),
    Path("x"),
    io.BytesIO(b"x"),
)


def test_a_pickle_that_asks_for_anything_is_refused() -> None:
    for value in HOSTILE:
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            with pytest.raises(plain_pickle.PlainPickleError, match="asks for"):
                plain_pickle.loads(pickle.dumps(value, protocol=protocol))


def test_a_dump_that_is_nested_too_deeply_is_named_and_not_used(tmp_path: Path) -> None:
    text = '{"version": "2.10", "pg_config": {}, "record_id": 1, "entries": ' + "[" * 100_000 + "]" * 100_000 + "}"
    (tmp_path / "nccl_trace_rank_0").write_text(text, encoding="utf-8")
    (tmp_path / "job.log").write_bytes(LOG)
    job = nccl_inspect.read(str(tmp_path))
    assert [(artifact.value, artifact.problem) for artifact in job.artifacts] == [(None, "damaged: nested too deeply")]


def test_what_shares_its_parts_has_no_text_and_numbers_have_an_end() -> None:
    shared: list[Any] = ["a"]
    for _ in range(60):
        shared = [shared, shared]
    huge = [[1 << 63] * 3, [1 << 62] * 1000]
    config = {"0": {"name": shared, "desc": shared, "ranks": [0, 1 << 63]}}
    calls = [entry(1, "0", 1 << 63, "all_reduce", "started", input_sizes=huge)]
    read = flight_recorder.read("rank_0", pickle.dumps({"version": "2.10", "pg_config": config, "entries": calls}))
    assert read.groups[""].ranks == (0, 0)
    assert len(str(read.calls["0"][0])) < 5000


BOMBS = {
    "a place of the memo far away": b"\x80\x02Nr\xff\xff\xff\x7f.",
    "the same in text": b"\x80\x02Np99999999999\n.",
    "the same behind a value": b"\x80\x05C\x01a\x98r\xff\xff\xff\x7f.",
    "bytes that are not there": b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b"x.",
    "text that is not there": b"\x80\x02X\xff\xff\xff\x7fx.",
    "a number that is not there": b"\x80\x02\x8b\xff\xff\xff\x3f.",
    "a number of many digits": pickle.dumps(10**5000),
    "a frame that is longer than the file": b"\x80\x04\x95" + (1 << 60).to_bytes(8, "little") + b"N.",
    "numbers that collide as keys": pickle.dumps({(1 << 61) - 1 << 64: 1}),
}


COPIES = b"\x80\x02]q\x00(" + b"K\x01" * 10_000 + b"e" + b"ctorch.jit._pickle\nbuild_intlist\nh\x00\x85R" * 2000


def test_a_small_pickle_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        for name, data in BOMBS.items():
            tracemalloc.reset_peak()
            with pytest.raises(plain_pickle.PlainPickleError):
                plain_pickle.loads(data)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20, name
        assert plain_pickle.loads(COPIES + b".") == [1] * 10_000
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


@given(_PLAIN, st.integers(2, pickle.HIGHEST_PROTOCOL))
def test_plain_values_are_read_as_they_were(value: Any, protocol: int) -> None:
    assert plain_pickle.loads(pickle.dumps(value, protocol=protocol)) == value


_OPCODES = [opcode.code.encode("latin-1") for opcode in pickletools.opcodes]


@given(st.lists(st.sampled_from(_OPCODES) | st.binary(min_size=1, max_size=300), max_size=60))
def test_no_opcodes_run_anything_or_make_the_reader_fall(parts: list[bytes]) -> None:
    with contextlib.suppress(plain_pickle.PlainPickleError):
        plain_pickle.loads(b"\x80\x02" + b"".join(parts) + b".")


@given(st.integers(0, 2600), st.binary(min_size=1, max_size=4))
def test_a_damaged_dump_is_refused_or_read(at: int, noise: bytes) -> None:
    whole = (MESH / "skip-eager" / "nccl_trace_rank_0").read_bytes()
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        flight_recorder.read("nccl_trace_rank_0", whole[:at] + noise + whole[at + len(noise) :])


def test_a_dump_that_breaks_off_is_named_so() -> None:
    whole = (MESH / "loop-eager" / "nccl_trace_rank_0").read_bytes()
    with pytest.raises(ValueError, match="it breaks off"):
        flight_recorder.read("nccl_trace_rank_0", whole[: len(whole) // 2])
