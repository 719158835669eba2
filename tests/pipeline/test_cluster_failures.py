"""What happens to the workers of a cluster, and to the user's patience."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from cluster_jobs import document, per_process, same

from nccl_inspect.cli import cli
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.ingest.sources import partition
from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.pipeline import distributed, reading
from nccl_inspect.pipeline.distributed import reduction, tasks
from nccl_inspect.scanning.found import NOTHING_KNOWN
from nccl_inspect.util.interruption import Interruption

dask = pytest.importorskip("dask")
clusters = pytest.importorskip("distributed")
pytestmark = pytest.mark.usefixtures("small_tasks")
MANY = 200
"""Files of a log that takes many tasks, each of which takes a while."""


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
    monkeypatch.setattr(distributed, "SHARE", 10_000)
    monkeypatch.setattr(reduction, "TOPS", MANY)


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
    monkeypatch.setattr(reduction, "TOPS", 3)
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
    reducing = reduction.Reduction(died, [group], NOTHING_KNOWN, lambda _: None)
    found = list(reducing.pieces(Fold()))
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
    reducing = reduction.Reduction(died, [[]] * 20, NOTHING_KNOWN, lambda _: None)
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


JOINED = tasks.joined
ENDED: list[int] = []
"""How many stretches the tasks that put some together left; -1 for one that failed."""


def counted(*about: Any) -> Any:
    """A task that puts stretches together; workers in threads find it here."""
    try:
        stretches = JOINED(*about)
    except Exception:
        ENDED.append(-1)
        raise
    ENDED.append(len(stretches))
    return stretches


@pytest.mark.slow
def test_workers_put_together_what_they_read(tmp_path: Path, threads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ENDED.clear()
    monkeypatch.setattr(tasks, "joined", counted)
    same(str(per_process(tmp_path / "logs")), threads)
    assert set(ENDED) == {1}


@pytest.mark.slow
def test_what_workers_cannot_put_together_is_put_together_here(
    tmp_path: Path, threads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    folder = str(per_process(tmp_path / "logs"))
    alone = document(reading.fold(folder))
    monkeypatch.setattr(tasks, "joined", fail)
    assert document(reading.fold(folder, cluster=threads.scheduler_address)) == alone


@pytest.mark.slow
def test_an_interruption_gives_what_came_until_then(
    tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reduction, "TOPS", 40)
    monkeypatch.setattr(distributed, "SHARE", 10_000)  # no file is cut
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


@pytest.mark.slow
def test_a_scheduler_file_names_the_cluster_and_a_scheduler_that_ends_is_told(
    tmp_path: Path, apart: tuple[str, subprocess.Popen[bytes]]
) -> None:
    file, scheduler = apart
    folder = str(per_process(tmp_path / "logs", MANY, copies=20))
    assert document(reading.fold(folder, cluster=file)) == document(reading.fold(folder))
    with pytest.raises(NcclInspectError, match="the connection to the cluster was lost"):
        reading.fold(folder, AfterSome(10, scheduler.kill), cluster=file)
