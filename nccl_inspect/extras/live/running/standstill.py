"""Notices that a job prints nothing any more."""

from __future__ import annotations

import glob
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from nccl_inspect.extras.live.running.streams import JobLog

_LOGS = ("nccl.*", "job*.log")


class Standstill:
    """Looks now and then; each silence counts once.

    Args:
        seconds: of silence; 0 to look at nothing.
        log: what the job prints to its streams.
        folder: of the run, where NCCL writes its files.
        pattern: of the files that NCCL writes elsewhere; may be empty.
        now: a clock, as that of files.
    """

    def __init__(
        self, seconds: float, log: JobLog, folder: Path, pattern: str = "", now: Callable[[], float] = time.time
    ) -> None:
        self._seconds = seconds
        self._log = log
        self._patterns = [*(str(Path(glob.escape(str(folder)), name)) for name in _LOGS), *filter(None, [pattern])]
        self._now = now
        self._next = now() + seconds
        self._seen = 0.0
        """When the last thing came before the silence that counted."""

    def came(self) -> bool:
        """Whether there was silence for so long, for the first time."""
        if not self._seconds or self._now() < self._next:
            return False
        newest = max((self._log.last, *self._written()))
        if newest + self._seconds > self._now():
            self._next = newest + self._seconds
            return False
        self._next = self._now() + self._seconds
        is_new, self._seen = newest > self._seen, newest
        return is_new

    def _written(self) -> Iterator[float]:
        for name in self._files():
            try:
                yield Path(name).stat().st_mtime
            except OSError:
                continue

    def _files(self) -> Iterable[str]:
        return (name for pattern in self._patterns for name in glob.iglob(pattern))  # noqa: PTH207 - absolute patterns
