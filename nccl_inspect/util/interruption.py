"""What Ctrl-C does at any moment of a run, and SIGTERM and SIGHUP with it.

While a log is read, the first one ends the reading between two blocks, so that what was read is whole and can still be
reported. Once all is read, the report takes seconds at most and is finished. The next one, and the first one at any
other moment, ends the process at once: not by an exception, which the code that it happens to hit may swallow or print,
but in the handler, after what was begun is undone. A line that is being written is finished first.

This module is loaded before anything else, so it imports next to nothing.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType
    from typing import Any, TypeVar

    _Item = TypeVar("_Item")

_INTERRUPTED, _TERMINATED = 130, 143  # exit statuses, as shells have them after SIGINT and SIGTERM
_PATIENCE = 1.4  # seconds for which a line that is being written may take to be finished
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STDERR = 2
_AT_ONCE, _READING, _FINISHING = "at once", "reading", "finishing"
_END = object()


class Interruption:
    """Holds what the next signal means.

    While it is entered, a log is read: the first signal then ends :meth:`until` with the item in hand. Once all is
    read, the report is finished.
    """

    def __init__(self) -> None:
        self.happened = False  # whether the reading was broken off
        self.is_last = True  # whether only the report is to be done after this reading
        self.unwritten = ""  # the file that was to be written and is not there yet; empty where there is none
        self.has_output = False  # whether something was written to standard output
        self.status = _INTERRUPTED  # the exit status after the last signal, as shells have it
        self._stage = _AT_ONCE
        self._within_line = self._ends = False
        self._waiting = False
        self._asked = False
        self._before: dict[signal.Signals, Any] = {}
        self._undo: list[Callable[[], object]] = []

    def take(self) -> dict[signal.Signals, Any]:
        """Handle the signals that nobody else does, which only the main thread can; gives the handlers until now."""
        before: dict[signal.Signals, Any] = {}
        for number in SIGNALS:
            usual = signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL
            if signal.getsignal(number) is usual:
                try:
                    before[number] = signal.signal(number, self._handle_signal)
                except ValueError:  # not the main thread
                    break
        return before

    def __enter__(self) -> Interruption:
        self.happened = self._asked = False
        self._before = self.take()
        self._stage = _READING
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stage = _FINISHING if self.is_last and not kind else _AT_ONCE
        for number, before in self._before.items():
            signal.signal(number, before)

    def until(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield the items up to an interruption; waiting for the next one is broken off, work on one is not."""
        self._stage = _READING
        iterator = iter(items)
        while not self.happened:
            try:
                self._waiting = True
                item: Any = next(iterator, _END)
            except KeyboardInterrupt:
                if not self.happened:
                    raise
                break
            finally:
                self._waiting = False
            if item is _END:
                break
            yield item
        self._stage = _FINISHING if self.is_last else _AT_ONCE

    @contextmanager
    def undo_with(self, undo: Callable[[], object]) -> Iterator[None]:
        """Undo, while this is entered, in the handler if the process ends there, where no ``finally`` is run."""
        self._undo.append(undo)
        try:
            yield
        finally:
            self._undo.remove(undo)

    def words(self) -> str:
        """Return what is said of the end."""
        if self.unwritten:
            return f"interrupted; nothing written to {self.unwritten}"
        return "interrupted; the output is partial" if self.has_output else "interrupted"

    @contextmanager
    def finish_line(self, is_long: bool) -> Iterator[None]:
        """Enter while a line is written: one that is long is finished before the process ends."""
        self._within_line = is_long
        yield
        self._within_line = False
        if self._ends:
            self._stop()

    def _handle_signal(self, number: int, _frame: FrameType | None) -> None:
        self.status = _TERMINATED if number == signal.SIGTERM else _INTERRUPTED
        if self._stage == _READING and not self.happened:
            self.happened = True
            if self._waiting:
                raise KeyboardInterrupt
        elif self._stage == _FINISHING and not self._asked and not self.happened:
            self._asked = True
            _write_stderr("finishing the report; Ctrl-C again to stop")
        elif self._within_line and not self._ends:
            self._ends = True
            signal.signal(signal.SIGALRM, lambda *_: self._stop())
            signal.setitimer(signal.ITIMER_REAL, _PATIENCE)
        else:
            self._stop()

    def _stop(self) -> None:
        for number in (*SIGNALS, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
        for undo in reversed(self._undo):
            with suppress(Exception):  # the process ends, and the others must be undone
                undo()
        _write_stderr(self.words())
        os._exit(self.status)


@contextmanager
def hold_signals(signals: Iterable[signal.Signals] = SIGNALS) -> Iterator[None]:
    """Let signals wait while this is entered; a process that is started inherits that (:func:`leave_to_parent`)."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_to_parent() -> None:
    """Leave Ctrl-C, which reaches all processes, to the one that started this one with signals held."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _write_stderr(words: str) -> None:
    with suppress(OSError):
        os.write(_STDERR, f"nccl-inspect: {words}\n".encode(errors="backslashreplace"))


PROCESS = Interruption()  # that of the command: signals belong to the process


def guard() -> None:
    """Let no signal end the process with a traceback from here on."""
    # One that hit a destructor was noticed already.
    sys.unraisablehook = lambda raised: (
        None if isinstance(raised.exc_value, KeyboardInterrupt) else sys.__unraisablehook__(raised)
    )
    PROCESS.take()
