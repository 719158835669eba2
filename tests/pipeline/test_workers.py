"""Several processes give the same job as one, however the files are shared out."""

from __future__ import annotations

import errno
import gc
import gzip
import json
import os
import pickle
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sample_data
from few_examples import FEW, every
from hypothesis import given
from hypothesis import strategies as st

from nccl_inspect.errors import NoInputError
from nccl_inspect.event.base import Process
from nccl_inspect.ingest.sources import files
from nccl_inspect.model.fold import MAX_NOTES, Fold
from nccl_inspect.pipeline import reading, workers
from nccl_inspect.pipeline.reader import Reader
from nccl_inspect.pipeline.workers import Part
from nccl_inspect.util import processes

CRI = b"2026-11-20T23:13:07.071868123Z stdout %b "


def document(fold: Fold) -> str:
    return json.dumps(reading.Judge(reading.Options())(fold).to_dict(), indent=1)


def is_same(path: Path, jobs: int) -> None:
    assert document(reading.fold([str(path)], jobs=jobs)) == document(reading.fold([str(path)]))


@pytest.mark.parametrize("jobs", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_samples_give_the_same_job(jobs: int) -> None:
    names = sample_data.names()
    for name in names[::20] if jobs == 2 else names:
        is_same(sample_data.FOLDER / name, jobs)


@pytest.mark.slow
@FEW
@given(jobs=st.integers(2, 9), skip=st.integers(0, 5000))
def test_a_log_cut_anywhere_gives_the_same_job(tmp_path: Path, jobs: int, skip: int) -> None:
    (data,) = sample_data.contents("socket-2node-tp4-dp2")
    log = tmp_path / "job.log"
    log.write_bytes(b"x" * skip + b"\n" + data)
    is_same(log, jobs)


def wrap_log(sample: str, front: bytes = b"") -> bytes:
    (data,) = sample_data.contents(sample)
    return b"".join(front + line for line in data.splitlines(keepends=True))


UNKNOWN = [b"vm:1:1 [0] NCCL INFO no release prints this %d\n" % number for number in range(300)]
UNKNOWN += [b"vm:1:1 [0] NCCL INFO no release prints this " + b"y" * (5000 + number) + b"\n" for number in range(50)]
QUICK: dict[str, Callable[[], bytes]] = {
    "two bytes for a letter": lambda: wrap_log("socket-2node-tp4-dp2").decode().encode("utf-16"),
    "a mark in front": lambda: wrap_log("socket-2node-tp4-dp2").decode().encode("utf-8-sig"),
    "an envelope that begins late": lambda: (
        wrap_log("v2.21.5-ipc") + wrap_log("v2.21.5-ipc", b"[pod/llama-0] ") + wrap_log("v2.21.5-ipc")
    ),
    "long lines that nobody knows": lambda: b"".join(UNKNOWN),
}
ALL = QUICK | {
    "low bytes first": lambda: wrap_log("socket-2node-tp4-dp2").decode().encode("utf-16-le"),
    "high bytes first": lambda: wrap_log("socket-2node-tp4-dp2").decode().encode("utf-16-be"),
    "a pod": lambda: wrap_log("v2.28.9-libfabric-2node", b"[pod/llama-0] "),
    "a time": lambda: wrap_log("v2.28.9-libfabric-2node", CRI % b"F"),
    "lines in parts, which may lie on a border": lambda: b"".join(
        CRI % b"P" + line[:40] + b"\n" + CRI % b"F" + line[40:] + b"\n" for line in wrap_log("v2.21.5-ipc").splitlines()
    ),
    "a rank": lambda: wrap_log("v2.28.9-libfabric-2node", b"[rank0]: "),
}


@pytest.mark.parametrize("logs", [QUICK, pytest.param(ALL, marks=pytest.mark.slow)], ids=["few", "all"])
def test_logs_of_all_kinds_give_the_same_job(logs: dict[str, Callable[[], bytes]], tmp_path: Path) -> None:
    for name, make in logs.items():
        (log := tmp_path / f"{name}.log").write_bytes(make())
        is_same(log, 3)


@pytest.mark.slow
@FEW
@given(
    known=st.sampled_from([b"[rank3]: ", b"[pod/llama-0] "]),
    unknown=st.sampled_from([b"7=> ", b"(worker-1) ~ ", b"run 1 | step 7 | "]),
    cut=st.integers(1, 71),
    head=st.sampled_from([100, 1 << 16]),
)
def test_what_unknown_launchers_put_in_front_gives_the_same_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bytes, unknown: bytes, cut: int, head: int
) -> None:
    """It shows in lines that have NCCL's prefix, and is taken from others, which may stand in another part."""
    monkeypatch.setattr(workers, "HEAD", head)
    (data,) = sample_data.contents("v2.19.4-socket-2node")
    bare = [b"NCCL version 2.1%d.4+cuda12.2\nRuntimeError: it broke\n" % minor for minor in range(8)]
    part = b"".join([*data.splitlines(keepends=True)[:20], *bare]).splitlines(keepends=True)
    lines = [front + line for front in (known, unknown) for line in part]
    log, at = tmp_path / "job.log", sum(map(len, lines[:cut]))
    log.write_bytes(b"".join(lines))
    reader = Reader()
    (file,) = files.find([str(log)])
    groups = [[Part(file, end=at)], [Part(file, start=at)]]
    for piece in workers.share_work(reader.fold, groups, lambda _: None):
        reader.add(piece)
    assert document(reader.fold) == document(reading.fold(str(log)))


@pytest.mark.slow
def test_more_statements_than_are_kept_apart_give_the_same_job(tmp_path: Path) -> None:
    shuffled = random.Random(1)
    lines = [b"vm:7:7 [0] x.cc:%d NCCL WARN message %d" % (n % 7, shuffled.randrange(9000)) for n in range(30_000)]
    log = tmp_path / "job.log"
    log.write_bytes(b"\n".join(lines) + b"\n")
    alone = reading.fold(str(log))
    assert len(alone.processes[Process("vm", 7)].notes) > MAX_NOTES
    assert reading.fold(str(log), jobs=2).processes == alone.processes
    assert sample_data.fold_sources([(str(log), lines)]).processes == alone.processes


@pytest.mark.slow
def test_files_of_all_kinds_are_shared_out(tmp_path: Path) -> None:
    (data,) = sample_data.contents("socket-2node-tp4-dp2")
    for number, line in enumerate(data.splitlines(keepends=True)):
        with (tmp_path / f"nccl.{number % 5}.log").open("ab") as file:
            file.write(line)
    (tmp_path / "nccl.1.log.gz").write_bytes(gzip.compress((tmp_path / "nccl.1.log").read_bytes()))
    (tmp_path / "nccl.1.log").unlink()
    (tmp_path / "nccl.9.log.gz").write_bytes(gzip.compress(data)[:2000])
    for jobs in (2, 3, 8):
        is_same(tmp_path, jobs)


def test_parts_cover_each_byte_once(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(b"".join(b"%d\n" % number for number in range(100_000)))
    groups = workers.plan_parts(str(log), 7, 1)
    assert len(groups) == 7
    read = b"".join(
        piece
        for group in groups
        for part in group
        for source in workers.open_part(part, lambda _: None)
        for piece in source.open()
    )
    assert read == log.read_bytes()


def test_the_first_process_reads_less_than_the_others(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(b"".join(b"step=%d loss=%d\n" % (number, number % 997) for number in range(100_000)))
    first, *rest = (sum(part.size for part in group) for group in workers.plan_parts(str(log), 3, 1))
    assert first < 0.9 * min(rest)
    assert first + sum(rest) == log.stat().st_size


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0, 0.1, 0.7, 0.99])
@pytest.mark.parametrize("number", [1, 4])
def test_logs_that_get_shorter_while_they_are_read_are_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: float, number: int
) -> None:
    (data,) = sample_data.contents("socket-2node-tp4-dp2")
    logs = [tmp_path / f"nccl.{at}.log" for at in range(number)]
    planned = workers.plan_parts

    def shorten_blocks(*values: Any) -> list[list[Part]]:
        groups = planned(*values)
        os.truncate(logs[-1], round(kept * len(data)))
        return groups

    monkeypatch.setattr(workers, "plan_parts", shorten_blocks)
    documents = []
    for jobs in (1, 2, 3):
        for log in logs:
            log.write_bytes(data + b"loss=2.0\n" * (number == 1))
        inputs = files.find([str(log) for log in logs])
        if jobs == 1:
            os.truncate(logs[-1], round(kept * len(data)))
        if number == 1 and not kept:
            with pytest.raises(NoInputError, match="got shorter while it was read"):
                reading.fold(inputs, jobs=jobs)
            continue
        fold = reading.fold(inputs, jobs=jobs)
        problem = f"{logs[-1]}: the file got shorter while it was read; read a copy of it"
        assert [source.problem for source in fold.sources] == [*[None] * (number - 1), problem]
        documents.append(document(fold))
    assert len(set(documents)) <= 1


def test_logs_may_grow_while_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data,) = sample_data.contents("socket-2node-tp4-dp2")
    log = tmp_path / "job.log"
    planned = workers.plan_parts

    def grown(*values: Any) -> list[list[Part]]:
        groups = planned(*values)
        log.write_bytes(data)
        return groups

    monkeypatch.setattr(workers, "plan_parts", grown)
    log.write_bytes(data[: len(data) // 2])
    assert document(reading.fold(str(log), jobs=3)) == document(reading.fold(str(log)))


def test_torn_packed_and_small_files_are_not_cut(tmp_path: Path) -> None:
    torn = sample_data.files("torn-p2p-8gpu")[0]
    assert [len(group) for group in workers.plan_parts(str(torn), 4, 1)] == [1]
    packed = tmp_path / "job.log.gz"
    packed.write_bytes(gzip.compress(torn.read_bytes()))
    assert [len(group) for group in workers.plan_parts(str(packed), 4, 1)] == [1]
    assert workers.plan_parts(str(torn), 4, 16 << 20) == []
    assert workers.plan_parts([str(torn), "-"], 4, 1) == []
    assert workers.plan_parts(torn.read_bytes(), 4, 1) == []


@pytest.fixture
def helpers(forks: None) -> Iterator[processes.Helpers]:
    """Yield what starts processes."""
    with processes.Helpers() as started:
        yield started


@pytest.mark.slow
def test_columns_are_handed_over_as_they_are(helpers: processes.Helpers) -> None:
    numpy = pytest.importorskip("numpy")
    columns = [numpy.arange(1 << 20), numpy.zeros(0), numpy.arange(10)[::2], {"a": numpy.ones((2, 3))}]
    columns += [numpy.arange(3, dtype="u1"), numpy.arange(5.0)]
    handed_over = helpers.start(list, columns).result()
    assert repr(handed_over) == repr(columns)
    assert all(column.flags.aligned for column in (*handed_over[:3], handed_over[5]))
    handed_over[0][0] = 7  # like those that were made here


@pytest.mark.slow
def test_processes_that_die_or_fail_have_no_result(helpers: processes.Helpers) -> None:
    assert helpers.start(bytes, 3).result() == bytes(3)
    assert helpers.start(os._exit, 1).result() is None
    assert helpers.start(int, "x").result() is None
    assert helpers.start(os.kill, 0, 0).result() is None  # gives None


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_no_process_is_left_where_nobody_wants_its_result(helpers: processes.Helpers) -> None:
    assert helpers.start(bytes, 3).result() == bytes(3)
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    before = children.read_text()
    with processes.Helpers() as others:
        others.start(time.sleep, 600)
        others.start(os._exit, 0)
    assert children.read_text() == before


@pytest.fixture
def forks() -> None:
    """Require that processes are forks of this one."""
    if not processes.can_fork():
        pytest.skip("forks are for Linux, and where no other thread runs")


@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize("unusable", ["missing", "forbidden"])
def test_results_go_through_a_file_on_disk_where_there_is_none_in_memory(
    unusable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some builds of Python, such as conda's, lack it; and containers may forbid the system call."""
    if unusable == "missing":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    else:

        def forbidden(name: str) -> int:
            raise PermissionError(name)

        monkeypatch.setattr(os, "memfd_create", forbidden)
    with processes.Helpers() as helpers:
        assert helpers.start(list, "abc").result() == ["a", "b", "c"]


@pytest.mark.slow
@pytest.mark.usefixtures("forks")
def test_an_exit_status_that_nobody_kept_counts_as_failure() -> None:
    """So it is where the program that starts this one ignores SIGCHLD, which is inherited."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        is_same(sample_data.files("timestamps")[0], 3)
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.usefixtures("forks")
def test_where_a_result_cannot_be_read_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> bytes:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(pickle, "load", full)
    with processes.Helpers() as helpers:
        assert helpers.start(bytes, 3).result() is None


@pytest.mark.slow
@pytest.mark.usefixtures("forks")
def test_no_file_is_left_open() -> None:
    """Neither of a process whose result was asked for, nor of others."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always", ResourceWarning)
        with processes.Helpers() as helpers:
            assert helpers.start(bytes, 3).result() == bytes(3)
            helpers.start(time.sleep, 600)
        del helpers
        gc.collect()
    assert not [str(warning.message) for warning in given if warning.category is ResourceWarning]


@pytest.mark.slow
@pytest.mark.usefixtures("forks")
def test_processes_whose_parent_was_killed_end() -> None:
    parent = os.getpid()
    processes.end_unless_child_of(os.getppid())
    child = os.fork()
    if not child:
        processes.end_unless_child_of(parent)
        processes.end_unless_child_of(os.getpid())
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_where_no_process_is_to_be_had_all_is_done_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(processes, "can_fork", lambda: False)
    is_same(sample_data.files("timestamps")[0], 3)
    monkeypatch.setattr(processes, "can_fork", lambda: True)
    monkeypatch.setattr(os, "fork", fork)
    is_same(sample_data.files("timestamps")[0], 3)


def test_a_worker_that_dies_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    start = processes.Helpers.start
    monkeypatch.setattr(processes.Helpers, "start", lambda self, *_: start(self, os._exit, 1))
    is_same(sample_data.files("timestamps")[0], 3)


@every(10)
def test_a_fold_arrives_as_it_is(step: int) -> None:
    line = b"vm:4294967295:9999999999 [-1] NCCL INFO Channel 00/-1 : 0[0] -> 1[1] via P2P/CUMEM\n"
    unknown = b"vm:4294967295:9999999999 [-1] NCCL INFO nobody knows this \xff\n" * 3
    logs = {name: reading.fold(list(map(str, sample_data.files(name)))) for name in sample_data.names()[::step]}
    for name, fold in (logs | {"numbers of any line": reading.fold(line + unknown)}).items():
        arrived = pickle.loads(pickle.dumps(fold))
        assert isinstance(arrived, Fold)
        for own in ("processes", "unrecognised", "sources", "productions"):
            assert getattr(arrived, own) == getattr(fold, own), f"{name}: {own}"
        for process, log in arrived.processes.items():
            assert {id(burst) for burst in log.open.values()} <= set(map(id, log.steps)), f"{name}: {process}"
