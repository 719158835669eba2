"""Logs with many connections are read and resolved in columns: the job is the same as that of edges one by one."""

from __future__ import annotations

import json
import pickle
import sys

import pytest
import sample_data

from nccl_inspect.model.communicators import edges
from nccl_inspect.model.connection import SIDES
from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.pipeline.reader import Reader
from nccl_inspect.pipeline.reading import Judge, Options
from nccl_inspect.scanning.bulk import LARGE

SAMPLES = (
    *("socket-2node-tp4-dp2", "v2.21.5-ipc", "torn-p2p-8gpu", "peer-killed", "timestamps", "debug-file-per-process"),
    *("mesh", "rank-missing-hang"),
)


def document(fold: Fold) -> str:
    return json.dumps(Judge(Options())(fold).to_dict(), indent=1)


def folded(name: str, large: float = LARGE) -> Fold:
    files = zip(sample_data.files(name), sample_data.contents(name), strict=True)
    return sample_data.folded([(str(file), data.splitlines()) for file, data in files], large)


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges, "MANY", 0)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_job_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_object = document(folded(name))
    monkeypatch.setattr(edges, "MANY", 0)
    assert document(folded(name, large=0)) == by_object


def quoted(fold: Fold) -> object:
    """The lines of ends and layouts, which are made when a rule asks."""
    job = Judge(Options())(fold)
    layouts = [(comm.layout, range(len(comm.rings))) for comm in job.communicators]
    return (
        [list(job.paths.end_lines(side)) for side in SIDES],
        [(layout.channels(), *map(layout.ring, rings), layout.contradiction()) for layout, rings in layouts],
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_the_lines_that_rules_quote_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_object = quoted(folded(name))
    monkeypatch.setattr(edges, "MANY", 0)
    assert quoted(folded(name, large=0)) == by_object


def test_both_ends_of_a_path_have_their_line() -> None:
    job = Judge(Options())(folded("socket-2node-tp4-dp2"))
    for side in SIDES:
        lines = list(job.paths.where(lambda kind: kind.transport == "NET").end_lines(side))
        assert lines
        assert all(f"[{side}]" in line.text for line in lines)
    assert not list(job.paths.where(lambda kind: kind.transport == "P2P").end_lines("send"))


def test_without_numpy_many_connections_are_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    by_object = document(folded(SAMPLES[0]))
    monkeypatch.setattr(edges, "MANY", 0)
    monkeypatch.delitem(sys.modules, "nccl_inspect.model.fold.edge_table", raising=False)
    monkeypatch.setitem(sys.modules, "numpy", None)  # an import of it fails
    assert document(folded(SAMPLES[0])) == by_object


@pytest.mark.parametrize("name", SAMPLES)
def test_objects_make_a_table_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_object = document(folded(name))
    monkeypatch.setattr(edges, "MANY", 0)
    assert document(folded(name)) == by_object


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("name", SAMPLES)
def test_a_fold_may_be_resolved_again_and_handed_over(name: str) -> None:
    fold = folded(name, large=0)
    first = document(fold)
    assert document(pickle.loads(pickle.dumps(fold))) == first
    assert document(fold) == first


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("name", ["v2.21.5-ipc", "torn-p2p-8gpu", "timestamps"])
def test_parts_merge(name: str) -> None:
    file, lines = str(sample_data.files(name)[0]), sample_data.contents(name)[0].splitlines()
    whole = document(sample_data.folded([(file, lines)], large=0))
    for border in range(0, len(lines), max(1, len(lines) // 12)):
        before, after = (sample_data.folded([(file, part)], large=0) for part in (lines[:border], lines[border:]))
        before.merge(pickle.loads(pickle.dumps(after)))
        assert document(before) == whole, border


EARLY, LATE = b"vm:7:7 [0] NCCL INFO ", b"vm:8:8 [1] NCCL INFO "
CONNECTS = b"Channel %02d/%d : %d[%d] -> %d[%d] via P2P/CUMEM"
RECEIVES = b"Channel %02d/%d : 1[1] -> 0[0] [receive] via NET/%b"
INIT = b"ncclCommInitRank comm 0x2e rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x75 - Init COMPLETE"

SPLIT = (
    b"ncclCommSplit comm 0x2f rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 60 parent 0x2e splitCount 1 color 1 key 1"
    b"- Init START"
)


@pytest.mark.parametrize(
    "blocks",
    [
        [
            [EARLY + b"cudaDriverVersion 13000"],
            [LATE + CONNECTS % (0, 1, 1, 1, 0, 0), LATE + CONNECTS % (0, 1, 1, 1, 2, 2)],
            [EARLY + CONNECTS % (0, 1, 0, 0, 1, 1), LATE + CONNECTS % (1, 1, 1, 1, 0, 0)],
        ],
        [
            [EARLY + INIT, EARLY + CONNECTS % (5, 0, 0, 0, 10, 2)],
            [
                EARLY + RECEIVES % (25, 0, b"IB/1/GDRDMA"),
                EARLY + RECEIVES % (26, 1, b"IBext_v8/0(3)/GDRDMA(PCI)/Shared"),
            ],
        ],
        [
            [b"vm:7:7 [0] NCCL INFO " + INIT, b"vm:7:8 [0] NCCL INFO " + SPLIT],
            [b"vm:7:9 [0] NCCL INFO Channel 02 : 0[0] -> 1[1] via SHM/direct/direct"],
            [b"vm:7:6 [0] NCCL INFO Connected all rings"],
            [b"vm:7:9 [0] NCCL INFO Channel 03 : 0[0] -> 1[1] via P2P/CUMEM"],
            [b"vm:7:8 [0] NCCL INFO Channel 01 : 23[00081] -> 8[9000] via P2P/CUMEM/CE"],
        ],
    ],
    ids=[
        "an edge of two blocks",
        "connections decided out of their order",
        "a thread says amid them that some are there",
    ],
)
def test_the_order_of_the_log_counts(blocks: list[list[bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    def read(large: float = LARGE) -> str:
        reader = Reader(large=large)
        reader.fold.start("job.log")
        for lines in blocks:
            reader.feed(lines)
        return document(reader.fold)

    by_object = read()
    monkeypatch.setattr(edges, "MANY", 0)
    assert read() == by_object
    assert read(large=0) == by_object
