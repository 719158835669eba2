"""A run from its folder to its report."""

from __future__ import annotations

import glob
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nccl_inspect.extras.live.running import folder, reports, streams, variables
from nccl_inspect.extras.live.running.child import Child, NotStartedError, Signals
from nccl_inspect.extras.live.running.folder import Place
from nccl_inspect.extras.live.running.gathering import Gathering
from nccl_inspect.extras.live.running.standstill import Standstill
from nccl_inspect.extras.live.running.streams import JobLog
from nccl_inspect.util import signals as signal_names
from nccl_inspect.util.records import Frozen, frozen

_LEAVE = 5.0
"""Seconds to wait at the end for what a stand-still began."""
_TICK = 0.1
"""Seconds between two looks at what is gathered."""
_STALE = 1800.0
"""Seconds for which a job prints on after a stand-still before its answers are of no use: the time-outs of PyTorch, and
what it writes before it gives up, take less."""


@frozen
class Options(Frozen):
    """Holds how a run is watched and reported."""

    stall: float = 0
    report: str = ""
    """The file of the report; empty for stderr."""
    quiet: bool = False


class Session:
    """One run.

    Args:
        place: of its files.
        environment: of this process, by which it is the one that reports or not.
        options: of the run.
        say: takes what is worth knowing.
    """

    def __init__(
        self, place: Place, environment: Mapping[str, str], options: Options, say: Callable[[str], None]
    ) -> None:
        self._folder = place.folder
        self._place = place
        self._options = options
        self._say: Callable[[str], None] = (lambda _: None) if options.quiet else say
        self._environment = {**environment, **variables.given(environment, place.folder)}
        self._rank, local = variables.ranks(environment)
        self._gathers = not local
        self.is_first = self._gathers and not self._rank
        """Whether this is the process that reports on the job."""
        self._gathering = Gathering(place.folder)
        self._standstill: Standstill | None = None
        self._kept_at = 0.0
        self._work: threading.Thread | None = None
        self._log: JobLog | None = None

    def run(self, argv: Sequence[str]) -> int:
        """Run the job and report on it; its exit status.

        Raises:
            NotStartedError: the command cannot be started.
        """
        with Signals.held() as signals:
            channels = streams.channels()
            self._log = log = JobLog(self._place.log, several=len(channels) > 1)
            if self.is_first:
                pattern = variables.log_files(self._environment)
                self._standstill = Standstill(self._options.stall, log, self._folder, pattern)
            try:
                child = Child(argv, self._environment, channels, log)
            except NotStartedError:
                folder.discard(self._place)
                raise
            status = child.wait(signals, self._tick)
            log.flush()
            self._end(status, log)
            folder.keep_status(self._place, self._ending(status))
            if self._gathers and self._gathered(signals) and self.is_first:
                self._report(status, signals)
        return status

    def _tick(self) -> None:
        assert self._log is not None
        if self._kept_at and self._log.last - self._kept_at > _STALE:
            self._gathering.forget()
            self._kept_at = 0.0
        if self._standstill and self._standstill.came() and not (self._work and self._work.is_alive()):
            self._log.flush()
            self._work = threading.Thread(target=self._look, daemon=True)
            self._work.start()

    def _look(self) -> None:
        """Gather what can be had while the job stands."""
        silence = f"nothing printed for {self._options.stall:g} s"
        if self._gathering.answers():
            self._kept_at = time.time()
            silence += f"; RAS answered, {self._folder}"
        self._gathering.machine()
        if self._options.quiet or self._gathering.has_ended or not reports.of_standstill(self._inputs()):
            self._say(silence)

    def _end(self, status: int, log: JobLog) -> None:
        self._gathering.end()
        if self._work:
            self._work.join(_LEAVE)
        if status == 0:
            self._gathering.forget()
        if log.problem:
            self._say(f"{self._place.log.name} is incomplete: {log.problem}")

    def _gathered(self, signals: Signals) -> bool:
        """Gather the state of the machine; False where a signal breaks it off."""
        work = threading.Thread(target=self._gathering.machine, daemon=True)
        work.start()
        while work.is_alive():
            if signals.ending(_TICK):
                return False
        return True

    def _report(self, status: int, signals: Signals) -> None:
        self._say(f"{self._ending(status)}; files of this run: {self._folder}")
        if self._options.quiet and not self._options.report:
            return
        made = reports.final(self._inputs(), self._options.report, signals)
        if made == reports.NO_LINES:
            self._say(f"no report: NCCL printed nothing to {self._folder}{self._why()}")

    def _ending(self, status: int) -> str:
        """Return how the command ended; its host, where a launcher started several."""
        if status == 0:
            return "the command succeeded"
        on = f" on {socket.gethostname().partition('.')[0]}" if self._rank is not None else ""
        return f"the command ended with status {signal_names.status_words(status)}{on}"

    def _inputs(self) -> list[Path]:
        """The folder, and what NCCL wrote elsewhere because somebody said so."""
        pattern = variables.log_files(self._environment)
        elsewhere = sorted(map(Path, glob.glob(pattern))) if pattern else []  # noqa: PTH207 - as it was given
        inside = self._folder.resolve()
        return [self._folder, *(path for path in elsewhere if not path.resolve().is_relative_to(inside))]

    def _why(self) -> str:
        level = self._environment.get("NCCL_DEBUG", "")
        return "" if level.upper() in ("INFO", "TRACE") else f" (NCCL_DEBUG={level} was set; leave it out)"


def become(argv: Sequence[str]) -> int:
    """Run the command in place of this process, where nothing can be kept; gives a status only if that fails.

    Raises:
        NotStartedError: always, if it returns at all.
    """
    try:
        os.execvpe(argv[0], list(argv), os.environ)
    except OSError as error:
        raise NotStartedError(f"{argv[0]}: {error.strerror}", 127 if error.errno == 2 else 126) from None
