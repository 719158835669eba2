"""A Dask cluster gives the same job as one process, whatever happens to its workers."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sample_data
from cluster_jobs import document, per_process, same
from few_examples import FEW
from hypothesis import given
from hypothesis import strategies as st

from nccl_inspect.ingest.sources import limits, partition
from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.pipeline import distributed, reading
from nccl_inspect.pipeline.distributed import reduction, tasks
from nccl_inspect.pipeline.workers import known_of
from nccl_inspect.scanning.found import NOTHING_KNOWN

clusters = pytest.importorskip("distributed")
fsspec = pytest.importorskip("fsspec")
pytestmark = pytest.mark.usefixtures("small_tasks")

CRI = b"2026-11-20T23:13:07.071868123Z stdout %b "


# --- the same job, without a cluster ----------------------------------------------------------------------------


def put_together(inputs: str, jobs: int, fan: int) -> Fold:
    """What :class:`Reduction` has workers do, done here."""
    groups = partition.all_of(inputs, lambda _: jobs)
    known = known_of(groups[0][0])
    asker = tasks.Asker.here()
    found = [
        tasks.read(group, number, known if number else NOTHING_KNOWN, asker) for number, group in enumerate(groups)
    ]
    while len(found) > 1:
        found = [tasks.joined(found[start : start + fan], asker) for start in range(0, len(found), fan)]
    (stretch,) = found[0]
    assert (stretch.first, stretch.end) == (0, len(groups))
    return stretch.fold()


@pytest.mark.slow
@FEW
@given(jobs=st.integers(1, 30), fan=st.integers(2, 9))
def test_a_tree_of_any_shape_gives_the_same_job(tmp_path: Path, jobs: int, fan: int) -> None:
    folder = str(per_process(tmp_path / "logs"))
    assert document(put_together(folder, jobs, fan)) == document(reading.fold(folder))


def test_results_of_tasks_stay_as_they_are(tmp_path: Path) -> None:
    """A task may run again, with what other tasks gave."""
    folder = str(per_process(tmp_path / "logs"))
    asker = tasks.Asker.here()
    found = [
        tasks.read(group, number, NOTHING_KNOWN, asker)
        for number, group in enumerate(partition.all_of(folder, lambda _: 4))
    ]
    once, again = (tasks.joined(found, asker) for _ in range(2))
    assert document(once[0].fold()) == document(again[0].fold()) == document(reading.fold(folder))


@pytest.mark.parametrize(
    ("size", "threads", "number"), [(0, 8, 1), (1 << 20, 8, 16), (40 << 20, 2, 10), (1 << 50, 2, 10_000)]
)
def test_tasks_follow_the_size_and_the_cluster(size: int, threads: int, number: int) -> None:
    assert max(1, distributed.task_count(size, threads, share=4 << 20)) == number


@pytest.mark.parametrize(("length", "most"), [(1, 3), (7, 3), (8, 8), (100, 16)])
def test_spans_are_cut_without_gaps(length: int, most: int) -> None:
    cut = reduction._cut(range(5, 5 + length), most)
    assert [number for part in cut for number in part] == list(range(5, 5 + length))
    assert len(cut) == min(length, most)


# --- the same job, with one -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", sample_data.names())
def test_samples_give_the_same_job(name: str, cluster: Any) -> None:
    same([str(file) for file in sample_data.files(name)], cluster)


def packed(folder: Path) -> str:
    for file in sorted(per_process(folder).glob("*.[1-5].log")):
        (folder / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    (folder / "nccl.7.log.gz").write_bytes(gzip.compress((folder / "nccl.7.log").read_bytes())[:1000])
    (folder / "nccl.7.log").unlink()
    return str(folder)


def archived(folder: Path) -> str:
    per_process(folder)
    with tarfile.open(folder / "all.tar.gz", "w:gz") as archive:
        for file in folder.glob("*.[1-5].log"):
            archive.add(file, file.name)
            file.unlink()
    return str(folder)


def with_faults(folder: Path) -> str:
    per_process(folder)
    (folder / "nccl.3.log").chmod(0)
    (folder / "empty.log").touch()
    (folder / "nccl.4.log").write_bytes(b"\x04\x22\x4d\x18 what nobody can unpack")
    return str(folder)


INPUTS: dict[str, Callable[[Path], Any]] = {
    "folder": lambda folder: str(per_process(folder)),
    "glob": lambda folder: f"{per_process(folder)}/nccl.*[02468].log",
    "packed": packed,
    "archive": archived,
    "faults": with_faults,
    "url": lambda folder: f"file://{per_process(folder)}",
    "pattern of urls": lambda folder: f"file://{per_process(folder)}/*.log",
    "several": lambda folder: [str(per_process(folder) / "nccl.9.log"), "no such.log", "*.nothing", str(folder)],
    "no log": lambda folder: [str(folder.parent), *map(str, sample_data.files("timestamps"))],
    "one large file": lambda folder: str(sample_data.files("socket-2node-tp4-dp2")[0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", INPUTS)
def test_inputs_of_all_kinds_give_the_same_job(name: str, tmp_path: Path, cluster: Any) -> None:
    same(INPUTS[name](tmp_path / "logs"), cluster)


@pytest.mark.slow
def test_a_path_is_that_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Any) -> None:
    """Workers have a working folder of their own."""
    per_process(tmp_path / "logs")
    monkeypatch.chdir(tmp_path)
    same(["logs/nccl.3.log", "logs"], cluster)


@pytest.mark.slow
def test_4096_small_files_give_the_same_job(tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "SHARE", 64 << 10)
    for number in range(4096):
        line = f"node-{number // 8}:{number}:{number} [{number % 8}] NCCL INFO "
        text = f"Channel 00/0 : {number}[{number % 8}] -> {number + 1}[{(number + 1) % 8}] via P2P/CUMEM\n"
        (tmp_path / f"nccl.{number}.log").write_text(line + "cudaDriverVersion 13000\n" + line + text)
    same(str(tmp_path), cluster)


@pytest.mark.slow
def test_workers_hold_to_the_limit_of_the_user(tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(limits.VARIABLE, "1K")
    folder = packed(tmp_path / "logs")
    same(folder, cluster)
    assert any("--max-unpacked" in str(source.problem) for source in reading.fold(folder).sources)


def wrapped_late(data: bytes) -> bytes:
    return data + b"".join(b"[pod/llama-0] " + line for line in data.splitlines(keepends=True)) + data


def passed_on_in_parts(data: bytes) -> bytes:
    return b"\n".join(CRI % b"P" + line[:40] + b"\n" + CRI % b"F" + line[40:] for line in data.splitlines()) + b"\n"


WRAPPED: dict[str, Callable[[bytes], bytes]] = {
    "from the start": lambda data: b"".join(CRI % b"F" + line for line in data.splitlines(keepends=True)),
    "late": wrapped_late,
    "in parts": passed_on_in_parts,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRAPPED)
def test_envelopes_give_the_same_job(name: str, tmp_path: Path, cluster: Any) -> None:
    (data,) = sample_data.contents("v2.28.9-libfabric-2node")
    log = tmp_path / "job.log"
    log.write_bytes(WRAPPED[name](data))
    same(str(log), cluster)


@pytest.mark.slow
def test_objects_in_memory_give_the_same_job(threads: Any) -> None:
    (data,) = sample_data.contents("socket-2node-tp4-dp2")
    lines = data.splitlines(keepends=True)
    for number in range(12):
        fsspec.filesystem("memory").pipe(f"/job/nccl.{number}.log", b"".join(lines[number::12]))
    for url in ("memory://job/nccl.*.log", "memory://job", "memory:///job/nccl.2.log"):
        same(url, threads)
