"""Reads and judges logs for a server: in a thread, one at a time, each log once, and a request can be given up."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import anyio
import anyio.from_thread
import anyio.to_thread
from mcp.server.mcpserver import Context

from nccl_inspect import artifacts, topology
from nccl_inspect.extras.assistant.folders import Folders
from nccl_inspect.ingest.sources import compression
from nccl_inspect.ingest.sources.blocks import Progress
from nccl_inspect.ingest.sources.files import File
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline import reading
from nccl_inspect.util.memory import pause_collector

_MAX_KEPT = 4  # jobs that are kept: those of two runs that are compared, and what was asked before
_MAX_KEPT_BYTES = 512 << 20  # bytes of the logs of which jobs are kept, but for the last one
_MAX_UNPACKED = "8G"
_INTERVAL = 0.5
_Result = TypeVar("_Result")


class JobRequest(NamedTuple):
    """Holds how a job is judged, as a tool was asked."""

    platform: str | None = None
    topology: tuple[str, ...] = ()
    job: str | None = None
    run: int | None = None
    is_one_of_two: bool = False


class LogReader:
    """Judged jobs of files in some folders."""

    def __init__(self, folders: Folders, options: reading.Options, interval: float = _INTERVAL) -> None:
        self.folders = folders
        self._options = options
        self._interval = interval
        self._kept: OrderedDict[Hashable, tuple[Job, int]] = OrderedDict()
        """Jobs and the bytes of their logs, by the files as they were and how they were judged."""
        self._lock: anyio.Lock | None = None

    async def job(
        self, logs: Sequence[str], wish: JobRequest, tells: Context, visit: Callable[[Job], None] | None = None
    ) -> Job:
        """Return the job of some logs.

        Args:
            tells: takes notice of progress.
            visit: is shown each job of several; they are then read anew.

        Raises:
            NcclInspectError: they cannot be read, or the wish cannot be met.
        """
        done, due = 0, time.monotonic() + self._interval

        def tell_progress(size: int, total: int | None) -> None:
            """Hand the progress of the thread on to the loop; it ends when the request is given up."""
            nonlocal done, due
            anyio.from_thread.check_cancelled()
            done += size
            if (now := time.monotonic()) >= due:
                due = now + self._interval
                anyio.from_thread.run(tells.report_progress, done, total, "reading the log")

        return await self.run_alone(lambda: self._job(logs, wish, tell_progress, visit))

    async def run_alone(self, work: Callable[[], _Result]) -> _Result:
        """Return what some work in a thread gives, while no other reads; a request that is given up ends it.

        Args:
            work: is not run in the loop of the server, which answers others meanwhile.
        """
        self._lock = self._lock or anyio.Lock()  # belongs to the loop
        async with self._lock:
            return await anyio.to_thread.run_sync(work)

    def _job(
        self, logs: Sequence[str], wish: JobRequest, progress: Progress, visit: Callable[[Job], None] | None = None
    ) -> Job:
        inputs = self.folders.logs(logs)
        topologies = tuple(self.folders.text(name) for name in wish.topology)
        key = (tuple(map(_state, inputs)), wish, topologies)
        if visit is None and (kept := self._kept.get(key)):
            self._kept.move_to_end(key)
            return kept[0]
        options = replace(self._options, platform=wish.platform or self._options.platform, job=wish.job, run=wish.run)
        if topologies:
            named = zip(topologies, wish.topology, strict=True)
            understood = tuple(topology.read_any(text, name) for text, name in named)
            options = replace(options, topologies=(), topologies_read=understood)
        judge = reading.Judge(options)  # before a long log is read, so that a mistake is reported at once
        limit = nullcontext() if compression.given_limit() else compression.set_limit(_MAX_UNPACKED)
        with limit, pause_collector():
            beside = artifacts.inventory(list(inputs))
            fold = reading.fold(beside.logs, progress)
            job = judge.find_job(fold, visit, wish.is_one_of_two, beside)
        self._kept[key] = (job, sum(file.size or 0 for file in inputs))
        while len(self._kept) > 1 and (
            len(self._kept) > _MAX_KEPT or sum(size for _, size in self._kept.values()) > _MAX_KEPT_BYTES
        ):
            self._kept.popitem(last=False)
        return job


def _state(file: File) -> tuple[str, int, int, int, int]:
    if file.place is None:
        return file.name, 0, 0, 0, 0
    status = cast(Path, file.place).stat()
    return file.name, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
