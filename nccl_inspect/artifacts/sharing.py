"""Reads the evidence of thousands of ranks in several processes: a dump of 2,000 calls takes some 20 ms."""

from __future__ import annotations

import multiprocessing
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from nccl_inspect import artifacts
from nccl_inspect.artifacts import Kind
from nccl_inspect.ingest.files import File
from nccl_inspect.ingest.parts import processors
from nccl_inspect.interruption import PROCESS, Held, left_to_parent
from nccl_inspect.model.inventory import Artifact

_MOST = 8
"""Processes: what they find is put together in one."""


def read(found: Sequence[tuple[File, Kind]], count: Callable[[int], None]) -> Iterator[list[Artifact] | None]:
    """What files hold, in their order; None for one that proves to be a log.

    Args:
        found: files on disk, with their kinds.
        count: told how many bytes were read: all processes are taken to be as quick as this one.
    """
    number = min(processors(), _MOST) if sys.platform == "linux" and threading.active_count() == 1 else 1
    shares = [found[len(found) * place // number : len(found) * (place + 1) // number] for place in range(number)]
    workers: list[tuple[Any, Connection]] = []

    def end() -> None:
        for process, _ in workers:
            process.kill()

    try:
        with PROCESS.undone_by(end):
            for share in shares[1:]:
                with Held():
                    workers.append(_started(share))
            yield from artifacts.one_by_one(shares[0], lambda size: count(size * number))
            for share, (_, connection) in zip(shares[1:], workers, strict=True):
                yield from _result(connection) or artifacts.one_by_one(share)
    finally:
        end()


def _started(share: Sequence[tuple[File, Kind]]) -> tuple[Any, Connection]:
    context: Any = multiprocessing.get_context("fork")  # only where no other thread may hold a lock
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(share, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _work(share: Sequence[tuple[File, Kind]], connection: Connection) -> None:
    left_to_parent()
    held = list(artifacts.one_by_one(share))
    with suppress(BrokenPipeError):  # nobody is there any more
        connection.send_bytes(pickle.dumps(held, pickle.HIGHEST_PROTOCOL))


def _result(connection: Connection) -> list[list[Artifact] | None]:
    """What a process found; nothing where it died."""
    try:
        return pickle.loads(connection.recv_bytes())  # type: ignore[no-any-return]  # noqa: S301 - from our own process
    except EOFError:
        return []
