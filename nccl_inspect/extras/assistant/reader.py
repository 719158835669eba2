"""Reads and judges logs for a server: in a thread, one at a time, each log once, and a request can be given up.

Nothing outside of some folders is read. A path is resolved first and then has to lie in one of them, so that neither
``..`` nor a link leads out.
"""

from __future__ import annotations

import os
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread
from mcp.server.mcpserver import Context

from nccl_inspect import topology
from nccl_inspect.artifacts import inventory, is_artifact
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.ingest.sources import files, log_detection
from nccl_inspect.ingest.sources.blocks import Progress
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline import reading
from nccl_inspect.util.discovery import suggest_path
from nccl_inspect.util.memory import pause_collector

_MAX_BYTES = 4 << 30
_MAX_ENTRIES = 20_000
MAX_SMALL = 4 << 20  # bytes of a policy or a topology
_TERMINAL = "run 'nccl-inspect summarize' in a terminal"


class Folders:
    """Folders below which files may be read, up to a number of them in one folder, and of bytes for one question."""

    def __init__(self, roots: Sequence[str], max_entries: int = _MAX_ENTRIES, max_bytes: int = _MAX_BYTES) -> None:
        self._roots = [Path(os.path.realpath(name)) for name in roots]
        for name, root in zip(roots, self._roots, strict=True):
            try:
                os.scandir(root).close()
            except OSError as error:
                raise NcclInspectError(f"--root {name}: {error.strerror}", "name a folder that can be read") from None
        self._max_entries = max_entries
        self._max_bytes = max_bytes

    @property
    def names(self) -> list[str]:
        """Return the folders, without links in their paths."""
        return [str(root) for root in self._roots]

    def logs(self, names: Iterable[str]) -> list[files.File]:
        """Return the files of paths and folders, as :mod:`nccl_inspect.ingest.sources.files` takes them."""
        chosen = []
        for name in map(_require_plain, names):
            joined = self._make_absolute(name)
            # Shown as it was named, if that leads to it from the working folder.
            shown = name if os.path.realpath(name) == os.path.realpath(joined) else joined
            path = self._resolve(name)
            if stat.S_ISDIR(_status(path, name).st_mode):
                chosen += self._find_below(path, shown)
            else:
                chosen.append(replace(files.find_regular(path), name=shown))
        if sum(file.size or 0 for file in chosen) > self._max_bytes:
            raise NcclInspectError(f"more than {self._max_bytes >> 30} GB of logs", f"name fewer files, or {_TERMINAL}")
        return chosen

    def text(self, name: str) -> str:
        """Return what a small file holds."""
        path = self._resolve(_require_plain(name))
        _status(path, name)
        try:
            with path.open("rb") as file:
                data = file.read(MAX_SMALL + 1)
        except OSError as error:
            raise NcclInspectError(f"{name}: {error.strerror}", "name a policy or a topology file") from None
        if len(data) > MAX_SMALL:
            raise NcclInspectError(f"{name}: larger than {MAX_SMALL >> 20} MB", "name a policy or a topology file")
        return data.decode("utf-8", "replace")

    def _find_below(self, folder: Path, shown: str) -> list[files.File]:
        entries = []
        for number, path in enumerate(files.walk_folder(folder, [])):
            if number >= self._max_entries:
                raise NcclInspectError(f"{shown}: more than {self._max_entries:,} files", "name a folder with fewer")
            real = Path(os.path.realpath(path))
            if not self._find_root(real):
                continue  # a link that leads out is not a part of the folder
            base = folder if real == path else real.parent
            # What is neither a log nor evidence is not listed: an answer has no room for it.
            if file := files.find_entry(base, real, is_artifact, lambda _name, _why: None):
                entries.append(replace(file, name=os.path.join(shown, path.relative_to(folder))))  # noqa: PTH118
        if not entries:
            raise NcclInspectError(f"{shown}: the folder holds no log", "name the files, or give them the suffix .log")
        return sorted(entries, key=lambda file: log_detection.natural(file.name))

    def _resolve(self, name: str) -> Path:
        path = Path(os.path.realpath(self._make_absolute(name)))
        if self._find_root(path) is None:
            raise NcclInspectError(
                f"{name}: outside of the folders that may be read",
                f"these are {', '.join(self.names)}; --root FOLDER at the start of the server adds one",
            )
        return path

    def _make_absolute(self, name: str) -> str:
        if os.path.isabs(name):  # noqa: PTH117
            return name
        candidates = [str(root / name) for root in self._roots]
        return next(filter(os.path.lexists, candidates), candidates[0])

    def _find_root(self, path: Path) -> Path | None:
        return next((root for root in self._roots if path == root or root in path.parents), None)


def _require_plain(name: str) -> str:
    """Return a path, and nothing else that the command line takes for an input."""
    if name == "-" or not name.strip():
        raise NcclInspectError("no path", "name a log file or a folder")
    if "\0" in name or "\n" in name:
        raise NcclInspectError("not a path: it holds a line end", "name a file; 'explain' takes lines of a log")
    return name


def _status(path: Path, name: str) -> os.stat_result:
    try:
        status = path.lstat()
    except FileNotFoundError:
        raise NcclInspectError(f"{name}: no such file", suggest_path(path, "check the path")) from None
    except OSError as error:
        raise NcclInspectError(f"{name}: {error.strerror}", "check the path and the folders in it") from None
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise NcclInspectError(f"{name}: not a plain file", "pipes and devices are not read: name a file or a folder")
    return status


# The reader

_MAX_KEPT = 4  # jobs that are kept: those of two runs that are compared, and what was asked before
_MAX_KEPT_BYTES = 512 << 20  # bytes of the logs of which jobs are kept, but for the last one
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
        """Return the job of some logs; where each job of several is to be shown, they are read anew."""
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
        """Return what some work in a thread gives, while no other reads; a request that is given up ends it."""
        self._lock = self._lock or anyio.Lock()  # belongs to the loop
        async with self._lock:
            return await anyio.to_thread.run_sync(work)

    def _job(
        self, logs: Sequence[str], wish: JobRequest, progress: Progress, visit: Callable[[Job], None] | None = None
    ) -> Job:
        inputs = self.folders.logs(logs)
        topologies = tuple(self.folders.text(name) for name in wish.topology)
        states = ((file.name, file.place and file.place.stat()) for file in inputs)
        key = (
            tuple((name, at and (at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns)) for name, at in states),
            wish,
            topologies,
        )
        if visit is None and (kept := self._kept.get(key)):
            self._kept.move_to_end(key)
            return kept[0]
        options = replace(self._options, platform=wish.platform or self._options.platform, job=wish.job, run=wish.run)
        if topologies:
            named = zip(topologies, wish.topology, strict=True)
            understood = tuple(topology.read_any(text, name) for text, name in named)
            options = replace(options, topologies=(), topologies_read=understood)
        judge = reading.Judge(options)  # before a long log is read, so that a mistake is reported at once
        with pause_collector():
            beside = inventory(list(inputs))
            fold = reading.fold(beside.logs, progress)
            job = judge.find_job(fold, visit, wish.is_one_of_two, beside)
        self._kept[key] = (job, sum(file.size or 0 for file in inputs))
        while len(self._kept) > 1 and (
            len(self._kept) > _MAX_KEPT or sum(size for _, size in self._kept.values()) > _MAX_KEPT_BYTES
        ):
            self._kept.popitem(last=False)
        return job
