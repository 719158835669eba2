"""Gathers what settles findings, beside the job: what RAS answers while it stands, and the state of this machine."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from nccl_inspect.extras.collect import host
from nccl_inspect.extras.collect.collection import Collection
from nccl_inspect.extras.live.running import kernel_messages

_COMMAND_SECONDS = 15.0
_RAS_SECONDS = 10.0
_BETWEEN = 5.0
_COUNTS = "collective_counts"
_SLACK = 60.0
"""Seconds by which the times of the kernel may be off."""


class Gathering:
    """Holds what was gathered on this machine.

    Args:
        folder: of the run.
        between: seconds between two questions: NCCL stands still only where no operation was launched between them.
    """

    def __init__(self, folder: Path, between: float = _BETWEEN) -> None:
        self._folder = folder
        self._between = between
        self._ended = threading.Event()
        self._began = time.time()

    def answers(self) -> bool:
        """Ask RAS twice; whether something is kept: not where operations continue, since then nothing is stuck."""
        self.forget()
        first = self._ask()
        if first and not self._ended.wait(self._between):
            second = self._ask()
            if first.keys() & second.keys() and first != second:
                self.forget()
                return False
        return bool(self._answers())

    def machine(self) -> None:
        """Gather what commands say of this machine; processes that the kernel ended before this run are none of it."""
        collection = self._collection()
        host.machine(collection)
        with suppress(OSError, ValueError):  # there is none, or it has other times
            log = self._folder / host.folder() / host.KERNEL_LOG
            log.write_bytes(kernel_messages.without_earlier_ends(log.read_bytes(), self._began - _SLACK))
        collection.write_index(host.folder())

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended."""
        return self._ended.is_set()

    def end(self) -> None:
        """Wait for nothing more: the job has ended."""
        self._ended.set()

    def forget(self) -> None:
        """Take the answers of RAS away: they are of a time when the job did not stand still."""
        for answer in self._answers():
            answer.unlink(missing_ok=True)

    def _ask(self) -> dict[str, Any]:
        """Ask, and keep what is answered; the operations that each rank has launched, by communicator.

        There are none where the answer is text only, and where 2.28 breaks its JSON because ranks do not answer.
        """
        host.ask(self._collection(), _RAS_SECONDS)
        with suppress(OSError, ValueError, AttributeError, TypeError):
            data = json.loads((self._folder / host.folder() / "ras.json").read_bytes())
            return {
                str(comm.get("hash")): [rank.get(_COUNTS) for rank in comm.get("ranks") or ()]
                for comm in data.get("communicators") or ()
            }
        return {}

    def _answers(self) -> list[Path]:
        return list((self._folder / host.folder()).glob("ras.*"))

    def _collection(self) -> Collection:
        return Collection(self._folder, lambda _: None, _COMMAND_SECONDS)
