"""A moment of fuzzing, and every input that once broke something; ``make fuzz`` goes on for as long as you like."""

from __future__ import annotations

import random

import fuzz_seeds
import fuzz_targets
import pytest
import sample_data
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from repository import TESTS

import nccl_inspect
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.ingest.lines.torn import is_torn

CRASHERS = sorted((TESTS / "data" / "crashers").iterdir())


def test_targets_take_their_seeds_and_what_once_broke_them() -> None:
    given = [(path.name.partition("-")[0], path.read_bytes()) for path in CRASHERS]
    for name in fuzz_targets.TARGETS:
        seeds = fuzz_seeds.SEEDS[name]()
        given += [(name, data) for data in seeds[:: max(len(seeds) // 5, 1)]]
    for name, data in given:
        fuzz_targets.TARGETS[name](data)


@given(name=st.sampled_from(sorted(fuzz_targets.TARGETS)), seed=st.integers(0, 1 << 32))
def test_changed_inputs_break_no_promise(name: str, seed: int) -> None:
    choice = random.Random(seed)
    seeds = fuzz_seeds.SEEDS[name]()
    fuzz_targets.TARGETS[name](fuzz_seeds.mutate(choice.choice(seeds), seeds, choice))


@pytest.mark.slow
@given(seed=st.integers(0, 1 << 32), step=st.sampled_from([1, 100, 4095, 4096, 65_536]))
def test_pieces_of_any_size_give_the_same_job(seed: int, step: int) -> None:
    """A changed log read at once, and as it comes through a pipe."""
    choice = random.Random(seed)
    data = fuzz_seeds.mutate(choice.choice(fuzz_seeds.logs()), fuzz_seeds.logs(), choice)
    if step == 1:
        data = data[:3000]
    assume(step == 65_536 or not is_torn(data))  # whether lines are put together is told by what one reading gives
    assert _document(data) == _document(_Pipe(data, step))


@pytest.mark.slow
@settings(max_examples=5)
@given(order=st.permutations(range(len(sample_data.files("debug-file-per-process")))))
def test_the_order_of_files_changes_nothing_that_is_judged(order: list[int]) -> None:
    files = [str(path) for path in sample_data.files("debug-file-per-process")]
    wanted = nccl_inspect.read(files).to_dict()
    found = nccl_inspect.read([files[at] for at in order]).to_dict()
    assert found["verdict"] == wanted["verdict"]
    assert found["paths"] == wanted["paths"]
    for key, name in (("communicators", "id"), ("findings", "rule")):
        names = [sorted(one[name] for one in document[key]) for document in (found, wanted)]  # type: ignore[attr-defined]
        assert names[0] == names[1]


class _Pipe:
    """Gives data in pieces of one size."""

    name = "<bytes>"

    def __init__(self, data: bytes, step: int) -> None:
        self._data, self._step, self._at = data, step, 0

    def read(self, _size: int = -1) -> bytes:
        self._at += self._step
        return self._data[self._at - self._step : self._at]


def _document(data: object) -> object:
    try:
        return nccl_inspect.read(data).to_dict()  # type: ignore[arg-type]
    except NcclInspectError as error:
        return str(error)
