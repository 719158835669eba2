"""Logs with many connections are read and resolved in columns: the job is the same as that of edges one by one."""

from __future__ import annotations

import json
import pickle

import pytest
import sample_data

from nccl_inspect.grammar import engine
from nccl_inspect.model.communicators import edges
from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.pipeline.reading import Judge, Options
from nccl_inspect.scanning.bulk import BulkScanner

SAMPLES = (
    *("socket-2node-tp4-dp2", "v2.21.5-ipc", "torn-p2p-8gpu", "peer-killed", "timestamps", "debug-file-per-process"),
    *("mesh", "rank-missing-hang"),
)


def document(fold: Fold) -> str:
    return json.dumps(Judge(Options())(fold).to_dict(), indent=1)


def folded(name: str) -> Fold:
    files = zip(sample_data.files(name), sample_data.contents(name), strict=True)
    return sample_data.folded([(str(file), data.splitlines()) for file, data in files])


@pytest.fixture
def in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges, "MANY", 0)
    monkeypatch.setattr(BulkScanner, "columns_from", 0)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_job_is_the_same(name: str, request: pytest.FixtureRequest) -> None:
    by_object = document(folded(name))
    request.getfixturevalue("in_columns")
    assert document(folded(name)) == by_object


@pytest.mark.parametrize("name", SAMPLES)
def test_objects_make_a_table_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_object = document(folded(name))
    monkeypatch.setattr(edges, "MANY", 0)
    assert document(folded(name)) == by_object


@pytest.mark.usefixtures("in_columns")
@pytest.mark.parametrize("name", SAMPLES)
def test_a_fold_may_be_resolved_again_and_handed_over(name: str) -> None:
    fold = folded(name)
    first = document(fold)
    assert document(pickle.loads(pickle.dumps(fold))) == first
    assert document(fold) == first


@pytest.mark.usefixtures("in_columns")
@pytest.mark.parametrize("name", ["v2.21.5-ipc", "torn-p2p-8gpu", "timestamps"])
def test_parts_merge(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file, lines = str(sample_data.files(name)[0]), sample_data.contents(name)[0].splitlines()
    whole = document(sample_data.folded([(file, lines)]))
    for border in range(0, len(lines), max(1, len(lines) // 12)):
        before, after = sample_data.folded([(file, lines[:border])]), sample_data.folded([(file, lines[border:])])
        before.merge(pickle.loads(pickle.dumps(after)))
        assert document(before) == whole, border


def test_edges_that_several_blocks_have_stand_where_they_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    early, late = b"vm:7:7 [0] NCCL INFO ", b"vm:8:8 [1] NCCL INFO "
    connects = b"Channel %02d/1 : %d[%d] -> %d[%d] via P2P/CUMEM"
    blocks = [
        [early + b"cudaDriverVersion 13000"],
        [late + connects % (0, 1, 1, 0, 0), late + connects % (0, 1, 1, 2, 2)],
        [early + connects % (0, 0, 0, 1, 1), late + connects % (1, 1, 1, 0, 0)],
    ]

    def folded_again() -> Fold:
        fold = Fold(engine.shipped())
        fold.start("job.log")
        for lines in blocks:
            fold.feed(lines)
        return fold

    by_object = document(folded_again())
    monkeypatch.setattr(edges, "MANY", 0)
    monkeypatch.setattr(BulkScanner, "columns_from", 0)
    assert document(folded_again()) == by_object
