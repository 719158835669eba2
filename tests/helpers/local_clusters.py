"""Clusters of this machine."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A scheduler and two workers, each a process of its own."""
    clusters = pytest.importorskip("distributed")
    with clusters.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as running:
        yield running


@pytest.fixture(scope="module")
def threads() -> Iterator[Any]:
    """A worker in this process, which sees what this process has in memory."""
    clusters = pytest.importorskip("distributed")
    with clusters.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as running:
        yield running


@pytest.fixture
def apart(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A scheduler and a worker that know each other by a scheduler file; gives the file and the scheduler.

    The parameter is run by the scheduler at its start.
    """
    clusters = pytest.importorskip("distributed")
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


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small logs be read in many tasks, and their folds be put together in several steps."""
    from nccl_inspect.pipeline import distributed
    from nccl_inspect.pipeline.distributed import reduction

    monkeypatch.setattr(distributed, "SHARE", 3000)
    monkeypatch.setattr(reduction, "TOPS", 3)
    monkeypatch.setattr(reduction, "FAN", 2)
