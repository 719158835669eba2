"""Ctrl-C and SIGTERM end the reading between two blocks, so that what was read is whole and can still be reported."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, TypeVar

_Item = TypeVar("_Item")


class Interruption:
    """Watches for Ctrl-C and SIGTERM while it is entered; only where nobody else does, and in the main thread.

    The first one ends :meth:`until` with the item in hand; a second one, while that is still worked on, is a
    :class:`KeyboardInterrupt` as usual.
    """

    def __init__(self) -> None:
        self.happened = False
        self._waiting = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
                if signal.getsignal(number) is usual:
                    self._before[number] = signal.signal(number, self._interrupted)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        again, self.happened = self.happened, True
        if self._waiting or again:
            raise KeyboardInterrupt

    def until(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """The items up to an interruption; waiting for the next one is broken off, work on one is not."""
        iterator = iter(items)
        while not self.happened:
            try:
                self._waiting = True
                item = next(iterator)
                self._waiting = False
            except StopIteration:
                return
            except KeyboardInterrupt:
                if not self.happened:
                    raise
                return
            finally:
                self._waiting = False
            yield item
