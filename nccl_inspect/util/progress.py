"""A progress bar for long inputs."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from itertools import repeat
from typing import Any

import click

from nccl_inspect.util.interruption import PROCESS

_LONG = 20_000_000  # bytes above which a run is long enough to show its progress
_LONG_WAIT = 2.0  # seconds after which it is, where nobody knows how many bytes will come
_REDRAW = 0.1


class Bar:
    """A progress bar on stderr, shown at once or never, or on a terminal when the input proves to be long."""

    def __init__(self, wanted: bool | None, label: str = "reading") -> None:
        self._label = label
        self.wanted = sys.stderr.isatty() if wanted is None else wanted
        self._at_once = wanted is not None
        self._began = self._drawn = time.monotonic()
        self._done = self._shown = 0
        self._bar: Any = None
        self._open = ExitStack()

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None:
        self._draw()
        self._open.close()

    def update(self, size: int, total: int | None) -> None:
        """Count bytes read, of a total that may be unknown."""
        self._done += size
        now = time.monotonic()
        is_long = self._done > _LONG or now - self._began > _LONG_WAIT if total is None else total > _LONG
        if self._bar is None and (self._at_once or is_long):
            self._open.enter_context(PROCESS.undo_with(self._open.close))  # it hides the cursor
            bar: Any = click.progressbar(
                None if total is not None else repeat(None),  # click wants to know either the length or the items
                length=total,
                label=self._label,
                file=sys.stderr,
                width=20,
                item_show_func=self._describe,
            )
            self._bar = self._open.enter_context(bar)
        if now - self._drawn >= _REDRAW:
            self._drawn = now
            self._draw()

    def _describe(self, _: object) -> str:
        size = self._done / 1e6
        return f"{size:,.1f} MB, {size / max(time.monotonic() - self._began, 1e-3):,.1f} MB/s"

    def _draw(self) -> None:
        if self._bar is not None:
            self._bar.update(self._done - self._shown)
            self._shown = self._done
