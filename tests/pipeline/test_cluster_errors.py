"""What a user of a cluster is told: no cluster, other versions, files that workers do not see."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import sample_data
from cluster_jobs import document

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.ingest.sources import partition
from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.pipeline import reading
from nccl_inspect.pipeline.distributed import cluster as connection
from nccl_inspect.pipeline.distributed import tasks
from nccl_inspect.scanning.found import NOTHING_KNOWN

dask = pytest.importorskip("dask")
clusters = pytest.importorskip("distributed")
fsspec = pytest.importorskip("fsspec")
pytestmark = pytest.mark.usefixtures("small_tasks")


WITHOUT = """
import importlib.abc, sys

class Without(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "nccl_inspect":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Without())
"""


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
def test_answers_of_workers(answer: Any, python: Any, says: str | None) -> None:
    answers = iter([{"the worker tcp://node-7:1": one} for one in (answer, python)])
    with pytest.raises(NcclInspectError) if says else nullcontext() as caught:
        connection.check_versions(lambda *_: next(answers))
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
    (stretch,) = tasks.unread(group, 0, NOTHING_KNOWN, "its workers died")
    state = Fold()
    state.merge(stretch.fold())
    assert [(source.name, source.problem) for source in state.sources] == [(LOG, f"{LOG}: its workers died")]
