"""Work that is done in processes of their own: they end with this one, and when nobody wants their results any more."""

from __future__ import annotations

import multiprocessing
import pickle
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from nccl_inspect.util.interruption import PROCESS, Held, left_to_parent
from nccl_inspect.util.records import Record, record


def can_fork() -> bool:
    """Whether a fork of this process can run: a lock held by another thread would stay locked in it."""
    return sys.platform == "linux" and threading.active_count() == 1


@record
class Helper(Record):
    """A process, and where its result comes from."""

    process: BaseProcess
    connection: Connection

    def result(self) -> Any:
        """What its work gave; None when it died, also while it sent that."""
        try:
            sizes = self.connection.recv()
            pieces = [bytearray(size) for size in sizes]
            for piece in pieces:
                if piece:
                    self.connection.recv_bytes_into(piece)
        except (EOFError, OSError):
            return None
        return pickle.loads(pieces[0], buffers=pieces[1:])  # noqa: S301 - from our own process


class Helpers:
    """Starts processes; they are killed where this is left, and when this process is interrupted."""

    def __init__(self) -> None:
        self._processes: list[BaseProcess] = []
        self._undone = PROCESS.undone_by(self._end)

    def __enter__(self) -> Helpers:
        self._undone.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._undone.__exit__(*error)
        self._end()

    def start(self, work: Callable[..., object], *values: object) -> Helper:
        """Start a process.

        Args:
            work: a function of a module; what it gives can be pickled.
            values: its arguments.
        """
        context: Any = multiprocessing.get_context("fork" if can_fork() else "spawn")
        with Held():
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(work, values, theirs), daemon=True)
            process.start()
            self._processes.append(process)
        theirs.close()
        return Helper(process, ours)

    def _end(self) -> None:
        for process in self._processes:
            process.kill()


def _work(work: Callable[..., object], values: tuple[object, ...], connection: Connection) -> None:
    left_to_parent()
    columns: list[pickle.PickleBuffer] = []
    result = pickle.dumps(work(*values), pickle.HIGHEST_PROTOCOL, buffer_callback=columns.append)
    pieces = [memoryview(result), *(column.raw() for column in columns)]  # columns are sent as they are
    with suppress(BrokenPipeError):  # nobody is there any more
        connection.send([len(piece) for piece in pieces])
        for piece in filter(len, pieces):
            connection.send_bytes(piece)
