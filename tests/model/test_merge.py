"""The fold merges: however a log is cut into parts, read apart and put together, the job is the same."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import pytest
import sample_data
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.pipeline.reader import Reader
from nccl_inspect.pipeline.reading import Judge, Options

Part = tuple[str, Sequence[bytes]]
"""Lines in the order of a source, with its name."""

ONE_FILE = ("socket-2node-tp4-dp2", "v2.21.5-ipc", "torn-p2p-8gpu", "peer-killed", "rank-missing-hang", "timestamps")
SEVERAL_FILES = "debug-file-per-process"


@cache
def parts_of(name: str) -> tuple[Part, ...]:
    """Each file of a sample with its lines."""
    return tuple(
        (str(file), tuple(data.splitlines()))
        for file, data in zip(sample_data.files(name), sample_data.contents(name), strict=True)
    )


def document(fold: Fold) -> str:
    """The whole JSON, findings and their evidence included."""
    return json.dumps(Judge(Options())(fold).to_dict(), indent=1)


@cache
def read_at_once(name: str) -> str:
    return document(sample_data.folded(parts_of(name)))


def merged(folds: Sequence[Fold], from_the_end: bool) -> Fold:
    """The folds as one, joined in their order, beginning with the first two or with the last two."""
    folds = list(folds)
    while len(folds) > 1:
        at = len(folds) - 2 if from_the_end else 0
        folds[at].merge(folds.pop(at + 1))
    return folds[0]


def cut(lines: Sequence[bytes], places: Sequence[int]) -> list[Sequence[bytes]]:
    ends = [0, *sorted(place % (len(lines) + 1) for place in places), len(lines)]
    return [lines[start:end] for start, end in pairwise(ends)]


PLACES = st.lists(st.integers(0, 100_000), min_size=1, max_size=5)


@pytest.mark.parametrize("name", ONE_FILE)
@settings(max_examples=40, deadline=None)
@given(places=PLACES, from_the_end=st.booleans())
def test_a_log_cut_at_line_ends_gives_the_same_job(name: str, places: list[int], from_the_end: bool) -> None:
    ((source, lines),) = parts_of(name)
    chunks = cut(lines, places)
    folds = [sample_data.folded([(source, chunk)]) for chunk in chunks]
    assert document(merged(folds, from_the_end)) == read_at_once(name)


@pytest.mark.parametrize("name", ONE_FILE)
@settings(max_examples=40, deadline=None)
@given(
    parts=st.lists(st.tuples(st.integers(0, 100_000), st.booleans()), min_size=1, max_size=5),
    from_the_end=st.booleans(),
)
def test_parts_in_columns_merge_with_each_other_and_with_lines(
    name: str, parts: list[tuple[int, bool]], from_the_end: bool
) -> None:
    """Each part is handed over by a process of its own."""
    ((source, lines),) = parts_of(name)
    in_columns = [True, *(is_in_columns for _, is_in_columns in parts)]
    chunks = cut(lines, [place for place, _ in parts])
    folds = [
        sample_data.folded([(source, chunk)], large=0 if is_in_columns else math.inf)
        for chunk, is_in_columns in zip(chunks, in_columns, strict=True)
    ]
    assert document(merged([pickle.loads(pickle.dumps(fold)) for fold in folds], from_the_end)) == read_at_once(name)


@settings(max_examples=40, deadline=None)
@given(places=st.lists(st.integers(0, 8), max_size=8), from_the_end=st.booleans())
def test_files_in_any_grouping_give_the_same_job(places: list[int], from_the_end: bool) -> None:
    parts = parts_of(SEVERAL_FILES)
    ends = [0, *sorted({place % len(parts) for place in places} - {0}), len(parts)]
    folds = [sample_data.folded(parts[start:end]) for start, end in pairwise(ends)]
    assert document(merged(folds, from_the_end)) == read_at_once(SEVERAL_FILES)


@settings(max_examples=40, deadline=None)
@given(places=PLACES, from_the_end=st.booleans())
def test_files_cut_anywhere_give_the_same_job(places: list[int], from_the_end: bool) -> None:
    """A worker's part ends in the middle of one file, and the next worker's begins there."""
    parts = parts_of(SEVERAL_FILES)
    total = sum(len(lines) for _, lines in parts)
    borders = sorted({place % total for place in places})
    groups: list[list[Part]] = [[]]
    seen = 0
    for source, lines in parts:
        inside = [border - seen for border in borders if seen < border < seen + len(lines)]
        chunks = cut(lines, inside) if inside else [lines]
        for index, chunk in enumerate(chunks):
            if index:
                groups.append([])
            groups[-1].append((source, chunk))
        seen += len(lines)
    assert document(merged([sample_data.folded(group) for group in groups], from_the_end)) == read_at_once(
        SEVERAL_FILES
    )


def test_an_empty_fold_changes_nothing_on_either_side() -> None:
    parts = parts_of("v2.21.5-ipc")
    before = Fold()
    before.merge(sample_data.folded(parts))
    assert document(before) == read_at_once("v2.21.5-ipc")
    after = sample_data.folded(parts)
    after.merge(Fold())
    assert document(after) == read_at_once("v2.21.5-ipc")


def test_blocks_of_any_size_give_the_same_job() -> None:
    ((source, lines),) = parts_of("timestamps")
    reader = Reader()
    reader.fold.start(source)
    for start in range(0, len(lines), 7):
        reader.feed(lines[start : start + 7])
    assert document(reader.fold) == read_at_once("timestamps")


def test_unrecognised_lines_and_warnings_keep_their_number_and_first_place() -> None:
    lines = [b"vm:1:%d [0] NCCL INFO a line that no release prints" % (tid % 3) for tid in range(30)]
    lines += [b"vm:1:1 [0] misc/socket.cc:41 NCCL WARN a warning that no release prints"] * 3
    whole = sample_data.folded([("log", lines)])
    for border in range(len(lines) + 1):
        joined = sample_data.folded([("log", lines[:border])])
        joined.merge(sample_data.folded([("log", lines[border:])]))
        assert document(joined) == document(whole)
        assert {m: (n.count, n.place, n.last) for m, n in joined.unrecognised.items()} == {
            m: (n.count, n.place, n.last) for m, n in whole.unrecognised.items()
        }
