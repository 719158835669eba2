"""A command as a child that notices nothing of it: its signals, its exit status, its streams."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras.live.running.streams import Channel, JobLog

PASSED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
"""Signals that the job gets as well."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that also end what is done after the job."""
_WAITED = (*PASSED, signal.SIGCHLD, signal.SIGWINCH)
_NOT_FOUND, _NOT_EXECUTABLE, _BY_SIGNAL = 127, 126, 128
_TICK = 1.0
"""Seconds between looks at the job while no signal comes."""
_DRAIN = 2.0
"""Seconds to wait, after the end of the job, for those that still hold its streams."""


class NotStartedError(NcclInspectError):
    """The command cannot be started; the exit status is that of a shell."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.exit_code = status


class Signals:
    """Waits for signals, which wait to be waited for: none is lost, and none interrupts anything."""

    def next(self, seconds: float) -> signal.struct_siginfo | None:
        """The next signal; None when none comes in time."""
        return signal.sigtimedwait(_WAITED, seconds)

    def ending(self, seconds: float) -> bool:
        """Whether a signal comes in time that ends what is done after the job; others end the wait only."""
        came = self.next(seconds)
        return came is not None and came.si_signo in ENDING

    @staticmethod
    @contextmanager
    def held() -> Iterator[Signals]:
        """Hold signals back; a system without sigtimedwait has no GPU either."""
        if not hasattr(signal, "sigtimedwait"):
            raise NcclInspectError("run needs Linux", "run the command alone, and give its log to summarize")
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
        try:
            yield Signals()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Child:
    """The job.

    Raises:
        NotStartedError: it cannot be started.
    """

    def __init__(
        self, argv: Sequence[str], environment: Mapping[str, str], channels: Sequence[Channel], log: JobLog
    ) -> None:
        ends = {stream: channel.inside for channel in channels for stream in channel.streams}
        try:
            # There are no threads yet, so that code between fork and exec does no harm.
            self._process = subprocess.Popen(argv, env=environment, stdout=ends[1], stderr=ends[2], preexec_fn=_release)
        except OSError as error:
            for channel in channels:
                os.close(channel.source)
            missing = isinstance(error, FileNotFoundError)
            what = "command not found" if missing and "/" not in argv[0] else error.strerror or str(error)
            raise NotStartedError(f"{argv[0]}: {what}", _NOT_FOUND if missing else _NOT_EXECUTABLE) from None
        finally:
            for channel in channels:
                os.close(channel.inside)
        self._channels = channels
        self._pumps = [threading.Thread(target=channel.pump, args=(log,), daemon=True) for channel in channels]
        for pump in self._pumps:
            pump.start()

    def wait(self, signals: Signals, tick: Callable[[], None]) -> int:
        """Wait for the end of the job; its exit status, as a shell has it.

        Args:
            signals: that are passed on.
            tick: called now and then.
        """
        while (status := self._process.poll()) is None:
            came = signals.next(_TICK)
            if came is None:
                tick()
            elif came.si_signo == signal.SIGWINCH:
                for channel in self._channels:
                    channel.resize()
            elif came.si_signo != signal.SIGCHLD and not _has_it(came):
                self._signal_group(came.si_signo)
        for pump in self._pumps:
            pump.join(_DRAIN)
        while signals.next(0):  # what came together with the end of the job was meant for it
            pass
        return _BY_SIGNAL - status if status < 0 else status

    def _signal_group(self, number: int) -> None:
        """Pass a signal on as a terminal does: to the command and to what it started in the same process group.

        What has a group of its own, such as the workers of torchrun, is left to who started it. The command shares the
        group of this process, which a terminal needs, so that a signal to the group would reach others, too.
        """
        for pid in _group(self._process.pid):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def _group(root: int) -> list[int]:
    """A process and those below it that are in the same process group."""
    below: dict[int, list[int]] = {}
    groups: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            _, parent, group = path.read_bytes().rpartition(b")")[2].split()[:3]
            below.setdefault(int(parent), []).append(int(path.parent.name))
            groups[int(path.parent.name)] = int(group)
    family = [root]
    for pid in family:  # grows
        family += below.get(pid, [])
    return [pid for pid in family if groups.get(pid) == groups.get(root)]


def _release() -> None:
    """Let the job have all signals: it inherits what is held back here."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAITED)


def _has_it(came: signal.struct_siginfo) -> bool:
    """Whether the job has the signal already: what a terminal sends goes to all processes in front of it."""
    return came.si_code > 0
