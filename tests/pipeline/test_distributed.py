"""A Dask cluster gives the same job as one process, whatever happens to its workers."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
import sample_data
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nccl_inspect.cli import cli
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.grammar import engine
from nccl_inspect.ingest.sources import limits, partition
from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.pipeline import distributed, reading
from nccl_inspect.pipeline.distributed import cluster as connection
from nccl_inspect.pipeline.distributed import reduction, tasks
from nccl_inspect.pipeline.workers import is_wrapped
from nccl_inspect.util.interruption import Interruption

dask = pytest.importorskip("dask")
clusters = pytest.importorskip("distributed")
fsspec = pytest.importorskip("fsspec")

CRI = b"2026-11-20T23:13:07.071868123Z stdout %b "
MANY = 200
"""Files of a log that takes many tasks, each of which takes a while."""


def document(fold: Fold) -> str:
    return json.dumps(reading.Judge(reading.Options())(fold).to_dict(), indent=1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A scheduler and two workers, each a process of its own."""
    with clusters.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as running:
        yield running


@pytest.fixture(scope="module")
def threads() -> Iterator[Any]:
    """A worker in this process, which sees what this process has in memory."""
    with clusters.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as running:
        yield running


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small logs be read in many tasks, and their folds be put together in several steps."""
    monkeypatch.setattr(distributed, "_SHARE", 3000)
    monkeypatch.setattr(reduction, "_TOPS", 3)
    monkeypatch.setattr(reduction, "_FAN", 2)


def same(inputs: str | Sequence[str], running: Any) -> None:
    assert document(reading.fold(inputs, cluster=running.scheduler_address)) == document(reading.fold(inputs))


def per_process(folder: Path, files: int = 16, copies: int = 1) -> Path:
    """A log in the files of its processes, written so often that it takes some time to read."""
    (data,) = sample_data.contents("socket-2node-tp4-dp2")
    lines = data.splitlines(keepends=True) * copies
    folder.mkdir(exist_ok=True)
    for number in range(files):
        (folder / f"nccl.{number}.log").write_bytes(b"".join(lines[number::files]))
    return folder


# --- the same job, without a cluster ----------------------------------------------------------------------------


def put_together(inputs: str, jobs: int, fan: int) -> Fold:
    """What :class:`Reduction` has workers do, done here."""
    groups = partition.all_of(inputs, lambda _: jobs)
    wrapped = is_wrapped(groups[0][0])
    asker = tasks.Asker.here()
    found = [tasks.read(group, number, wrapped and number > 0, asker) for number, group in enumerate(groups)]
    while len(found) > 1:
        found = [tasks.joined(found[start : start + fan], asker) for start in range(0, len(found), fan)]
    (stretch,) = found[0]
    assert (stretch.first, stretch.end) == (0, len(groups))
    return stretch.fold()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(jobs=st.integers(1, 30), fan=st.integers(2, 9))
def test_a_tree_of_any_shape_gives_the_same_job(tmp_path: Path, jobs: int, fan: int) -> None:
    folder = str(per_process(tmp_path / "logs"))
    assert document(put_together(folder, jobs, fan)) == document(reading.fold(folder))


def test_results_of_tasks_stay_as_they_are(tmp_path: Path) -> None:
    """A task may run again, with what other tasks gave."""
    folder = str(per_process(tmp_path / "logs"))
    asker = tasks.Asker.here()
    found = [
        tasks.read(group, number, False, asker) for number, group in enumerate(partition.all_of(folder, lambda _: 4))
    ]
    once, again = (tasks.joined(found, asker) for _ in range(2))
    assert document(once[0].fold()) == document(again[0].fold()) == document(reading.fold(folder))


@pytest.mark.parametrize(
    ("size", "threads", "number"), [(0, 8, 1), (1 << 20, 8, 16), (40 << 20, 2, 10), (1 << 50, 2, 10_000)]
)
def test_tasks_follow_the_size_and_the_cluster(
    size: int, threads: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "_SHARE", 4 << 20)
    assert max(1, distributed._tasks(size, threads)) == number


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
    monkeypatch.setattr(distributed, "_SHARE", 64 << 10)
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


@pytest.mark.slow
def test_more_statements_than_are_kept_apart_give_the_same_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: Any
) -> None:
    for module in ("fold", "process_log"):
        monkeypatch.setattr(f"nccl_inspect.model.fold.{module}.MAX_NOTES", 30)
    shuffled = random.Random(1)
    lines = [b"vm:7:7 [0] x.cc:%d NCCL WARN message %d" % (n % 7, shuffled.randrange(100)) for n in range(600)]
    log = tmp_path / "job.log"
    log.write_bytes(b"\n".join(lines) + b"\n")
    same(str(log), threads)


# --- what happens to workers, and to the user's patience --------------------------------------------------------


class AfterSome:
    """Progress that does something once, when some tasks have ended.

    Args:
        tasks: so many.
        act: what to do then.
    """

    def __init__(self, tasks: int, act: Callable[[], object]) -> None:
        self.calls = 0
        self.size = 0
        self._tasks, self._act = tasks, act

    def __call__(self, size: int, _total: int | None) -> None:
        self.calls += 1
        self.size += size
        if self.calls == self._tasks:
            self._act()


def kill_one(running: Any) -> Callable[[], None]:
    return lambda: os.kill(next(iter(running.workers.values())).pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_changes_nothing(tmp_path: Path, cluster: Any) -> None:
    folder = str(per_process(tmp_path / "logs", MANY, copies=20))
    progress = AfterSome(10, kill_one(cluster))
    found = reading.fold(folder, progress, cluster=cluster.scheduler_address)
    assert document(found) == document(reading.fold(folder))
    assert progress.calls > 20, "it was killed when all was read"
    assert progress.size == sum(file.stat().st_size for file in Path(folder).iterdir())


@pytest.fixture
def strict(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A cluster that gives up a task when one worker died with it; the parameter is run by each worker at its start."""
    preload = [request.param] if hasattr(request, "param") else []
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        clusters.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", preload=preload) as running,
    ):
        yield running


def one_file_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each task read one file, and no task put together what others read."""
    monkeypatch.setattr(distributed, "_SHARE", 10_000)
    monkeypatch.setattr(reduction, "_TOPS", MANY)


@pytest.mark.slow
def test_results_that_a_worker_took_with_it_are_made_again(
    tmp_path: Path, strict: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill_when_there_are_results() -> None:
        time.sleep(1)
        kill_one(strict)()
        time.sleep(1)

    one_file_each(monkeypatch)
    folder = str(per_process(tmp_path / "logs", MANY, copies=20))
    progress = AfterSome(10, kill_when_there_are_results)
    found = reading.fold(folder, progress, cluster=strict.scheduler_address)
    assert document(found) == document(reading.fold(folder))
    assert progress.size == sum(file.stat().st_size for file in Path(folder).iterdir())


CULPRIT = """
import os, signal
from nccl_inspect.pipeline.distributed import tasks

tasks.usual = getattr(tasks, "usual", tasks.read)  # it may be run more than once

def read_or_die(group, *rest):
    if any(part.name.endswith("nccl.13.log") for part in group):
        os.kill(os.getpid(), signal.SIGKILL)
    return tasks.usual(group, *rest)

tasks.read = read_or_die
"""


@pytest.mark.slow
@pytest.mark.parametrize("strict", [CULPRIT], indirect=True, ids=["culprit"])
def test_what_kills_workers_is_not_read_and_all_of_the_rest_is(
    tmp_path: Path, strict: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_file_each(monkeypatch)
    monkeypatch.setattr(reduction, "_TOPS", 3)
    folder = per_process(tmp_path / "logs", 40, copies=4)
    found = reading.fold(str(folder), cluster=strict.scheduler_address)
    (culprit,) = [source for source in found.sources if source.problem]
    assert culprit.name == str(folder / "nccl.13.log")
    assert "the workers that read it, or what comes with it, died: they may need more memory" in str(culprit.problem)
    alone = reading.fold([source.name for source in found.sources if not source.problem])
    assert found.processes.keys() == alone.processes.keys()
    assert [source.counts for source in found.sources if not source.problem] == [one.counts for one in alone.sources]
    assert outcome(strict, str(folder)) == 0
    assert outcome(strict, str(folder), "--select", "peer-death", "--fail-on", "error") == 3
    assert outcome(strict, str(folder / "nccl.13.log")) == 3


def test_what_is_given_up_is_asked_of_nobody() -> None:
    """A worker might die of what another one was given; then all would fail for a file that is left out anyway."""
    died: Any = Died()
    group = [partition.Part("nccl.13.log", None, problem=("not found", ""))]
    reducing = reduction.Reduction(died, [group], False, lambda _: None)
    found = list(reducing.pieces(Fold(engine.shipped())))
    assert [source.problem for fold in found for source in cast("Fold", fold).sources] == [
        "nccl.13.log: the workers that read it, or what comes with it, died: they may need more memory"
    ]


class Died:
    """A task whose worker died, and a client whose tasks all do."""

    status = "error"
    key = "any"

    def exception(self) -> BaseException:
        from distributed.scheduler import KilledWorker

        worker: Any = None
        return KilledWorker("any", worker, 0)

    def add_done_callback(self, told: Callable[[Any], None]) -> None:
        told(self)

    def submit(self, *_: object, **__: object) -> Died:
        return self


def test_all_that_died_together_are_read_alone() -> None:
    """The news come one after the other, and the first of them is of a task that may be innocent."""
    died: Any = Died()
    reducing = reduction.Reduction(died, [[]] * 20, False, lambda _: None)
    reducing._hear(12, died)
    reducing._listen()
    threading.Timer(0.1, reducing._hear, (13, died)).start()
    waiting = reducing._submitted_again(range(10, 20), died)
    assert [span for span, future in waiting if future is None] == [range(12, 13), range(13, 14)]
    assert [span for span, future in waiting if future is not None] == [range(10, 12), range(14, 20)]


def outcome(running: Any, *arguments: str) -> int:
    """The exit status of ``summarize``, which says in one line what killed its readers."""
    done = CliRunner().invoke(
        cli, ["summarize", *arguments, "--cluster", running.scheduler_address], standalone_mode=False
    )
    said = [*done.stderr.splitlines(), str(done.exception)]
    assert sum("nccl.13.log: the workers that read it" in line for line in said) == 1
    return int(getattr(done.exception, "exit_code", done.return_value))


@pytest.mark.slow
def test_workers_put_together_what_they_read(tmp_path: Path, threads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a task failed")

    monkeypatch.setattr(reduction.Reduction, "_submitted_again", fail)
    same(str(per_process(tmp_path / "logs")), threads)


@pytest.mark.slow
def test_what_workers_cannot_put_together_is_put_together_here(
    tmp_path: Path, threads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    folder = str(per_process(tmp_path / "logs"))
    alone = document(reading.fold(folder))
    monkeypatch.setattr(tasks, "_finish", fail)
    assert document(reading.fold(folder, cluster=threads.scheduler_address)) == alone


@pytest.mark.slow
def test_an_interruption_gives_what_came_until_then(
    tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reduction, "_TOPS", 40)
    monkeypatch.setattr(distributed, "_SHARE", 10_000)  # no file is cut
    folder = per_process(tmp_path / "logs", MANY, copies=20)
    with Interruption() as interruption:
        progress = AfterSome(MANY * 3 // 4, lambda: os.kill(os.getpid(), signal.SIGINT))
        found = reading.fold(str(folder), progress, interruption, cluster=cluster.scheduler_address)
    assert found.partial
    names = [source.name for source in found.sources]
    assert 0 < len(names) < MANY
    found.partial = False
    assert document(found) == document(reading.fold(names))
    with clusters.Client(cluster.scheduler_address, set_as_default=False) as client:
        deadline = time.monotonic() + 30
        while (left := client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))) and (
            time.monotonic() < deadline
        ):
            time.sleep(0.1)
        assert left == 0, "its tasks were not given up"


WITHOUT = """
import importlib.abc, sys

class Without(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "nccl_inspect":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Without())
"""


@pytest.fixture
def apart(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A scheduler and a worker that know each other by a scheduler file; gives the file and the scheduler.

    The parameter is run by the scheduler at its start.
    """
    file = tmp_path / "scheduler.json"
    run = [sys.executable, "-m", "dask"]
    preload = ["--preload", request.param] if hasattr(request, "param") else []
    scheduler = subprocess.Popen(
        [*run, "scheduler", "--scheduler-file", str(file), "--port", "0", "--no-dashboard", *preload],
        stderr=subprocess.DEVNULL,
    )
    worker = subprocess.Popen(
        [*run, "worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-nanny", "--no-dashboard"],
        stderr=subprocess.DEVNULL,
        cwd="/",
    )
    try:
        while not file.exists():
            assert scheduler.poll() is None
            time.sleep(0.1)
        with clusters.Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(1, timeout=30)
        yield str(file), scheduler
    finally:
        for process in (worker, scheduler):
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_scheduler_file_names_the_cluster_and_a_scheduler_that_ends_is_told(
    tmp_path: Path, apart: tuple[str, subprocess.Popen[bytes]]
) -> None:
    file, scheduler = apart
    folder = str(per_process(tmp_path / "logs", MANY, copies=20))
    assert document(reading.fold(folder, cluster=file)) == document(reading.fold(folder))
    with pytest.raises(NcclInspectError, match="the connection to the cluster was lost"):
        reading.fold(folder, AfterSome(10, scheduler.kill), cluster=file)


# --- what is told -----------------------------------------------------------------------------------------------

LOG = str(sample_data.files("timestamps")[0])


def error_of(inputs: Any, address: str) -> str:
    with pytest.raises(NcclInspectError) as caught:
        reading.fold(inputs, cluster=address)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("tcp://127.0.0.1:1", "Timed out trying to connect"),
        ("nonsense", "missing port number"),
        ("127.0.0.1:87x", "invalid literal"),
        ("smoke://127.0.0.1:1", "unknown address scheme"),
        (LOG, "this is not a scheduler file"),
    ],
)
def test_a_cluster_that_is_not_there(address: str, says: str) -> None:
    with dask.config.set({"distributed.comm.timeouts.connect": "500ms"}):
        error = error_of(LOG, address)
    assert error.startswith(f"--cluster {address}: the cluster cannot be reached: ")
    assert says in error


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert error_of(LOG, "tcp://127.0.0.1:1").endswith("not installed; pip install 'nccl-inspect[dask]'")


@pytest.mark.slow
def test_what_only_this_process_has_cannot_be_shared(cluster: Any) -> None:
    for inputs in ("-", [LOG, "-"], b"vm:1:1 NCCL INFO", "/dev/null"):
        assert "cannot be read by other machines; give files" in error_of(inputs, cluster.scheduler_address)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "version"), [("__version__", "9.9.9"), ("version", lambda: "nccl-inspect 0.1.0 and Python 3.99")]
)
def test_workers_of_another_version_are_told(
    name: str, version: Any, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, name, version)
    error = error_of(LOG, cluster.scheduler_address)
    assert error.startswith("the scheduler has nccl-inspect ")
    assert "install the same on the scheduler, on all workers and here" in error


@pytest.mark.slow
@pytest.mark.parametrize("apart", [WITHOUT], indirect=True, ids=["without"])
def test_a_scheduler_without_the_package_is_told(apart: tuple[str, subprocess.Popen[bytes]]) -> None:
    file, _ = apart
    assert error_of(LOG, file).startswith("the scheduler has no nccl-inspect, and this is ")


@pytest.mark.parametrize(
    ("answer", "python", "says"),
    [
        (ModuleNotFoundError(), "3.11.2", "has no nccl-inspect"),
        (AttributeError(), "3.11.2", "has no nccl-inspect"),
        ("9.9.9", "3.8.1", "has nccl-inspect 9.9.9 and Python 3.8"),
        (OSError("it died"), "3.8.1", None),
        ("9.9.9", OSError("it died"), None),
    ],
)
def test_answers_of_workers(answer: Any, python: Any, says: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([{"the worker tcp://node-7:1": one} for one in (answer, python)])
    monkeypatch.setattr(connection, "_answers", lambda *_: next(answers))
    with pytest.raises(NcclInspectError) if says else nullcontext() as caught:
        connection._check_versions(cast(Any, None))
    assert says is None or str(getattr(caught, "value", "")).startswith(f"the worker tcp://node-7:1 {says}")


def test_a_worker_that_came_late_with_another_version_is_told(threads: Any) -> None:
    with clusters.Client(threads.scheduler_address, set_as_default=False) as client:
        future = client.submit(tasks.joined, [], tasks.Asker("nccl-inspect 9.9.9 and Python 3.11", None))
        with pytest.raises(
            NcclInspectError, match=r"the worker inproc://.* has nccl-inspect .*, and this is nccl-inspect 9\.9\.9 "
        ):
            future.result()


@pytest.mark.slow
def test_what_workers_do_not_see_is_told_and_the_rest_is_read(cluster: Any) -> None:
    fsspec.filesystem("memory").pipe("/alone/job.log", Path(LOG).read_bytes())
    found = reading.fold(["memory://alone/job.log", LOG], cluster=cluster.scheduler_address)
    problem = str(found.sources[0].problem)
    assert problem.startswith("memory://alone/job.log: not visible to the worker tcp://127.0.0.1:")
    assert found.sources[1].problem is None
    assert document(found).count('"src"') == document(reading.fold(LOG)).count('"src"')


def test_a_group_that_nobody_could_read_is_named() -> None:
    (group,) = partition.all_of([LOG], lambda _: 1)
    (stretch,) = tasks.unread(group, 0, False, "its workers died")
    state = Fold(engine.shipped())
    state.merge(stretch.fold())
    assert [(source.name, source.problem) for source in state.sources] == [(LOG, f"{LOG}: its workers died")]
