"""Reads the parts of a log in several processes, and puts together what they found."""

from __future__ import annotations

import multiprocessing
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from nccl_inspect.grammar import engine
from nccl_inspect.grammar.counts import Counts
from nccl_inspect.grammar.scanner import Scanner
from nccl_inspect.ingest import entries, parts
from nccl_inspect.ingest.parts import Part
from nccl_inspect.ingest.sources import Lines
from nccl_inspect.interruption import PROCESS, Held, left_to_parent
from nccl_inspect.model.fold import Fold, Piece
from nccl_inspect.records import Record

_HEAD = 1 << 16


def shared(state: Fold, groups: Sequence[Sequence[Part]], progress: Callable[[int], None]) -> Iterator[Piece]:
    """What is to be added to a fold; all groups but the first are read by processes of their own.

    The result is that of one process: where merging would not give exactly that, the part is read again here.

    Args:
        state: the fold, to which each piece must be added before the next one is asked for.
        groups: what each process reads.
        progress: told how many bytes were read.
    """
    wrapped = is_wrapped(groups[0][0])
    workers: list[_Worker] = []

    def end() -> None:
        for worker in workers:
            worker.process.kill()

    try:
        with PROCESS.undone_by(end):
            for group in groups[1:]:
                with Held():
                    workers.append(_started(group, wrapped))
            yield from read(state, groups[0], progress)
            for group, worker in zip(groups[1:], workers, strict=True):
                found = worker.result()
                if found is not None and state.can_merge(found):
                    yield found
                    progress(sum(part.size for part in group))
                else:
                    yield from read(state, group, progress)
    finally:
        end()


def read(state: Fold, group: Sequence[Part], progress: Callable[[int], None]) -> Iterator[Piece]:
    """What is to be added to a fold, read here.

    Args:
        state: the fold, to which each piece must be added before the next one is asked for.
        group: what to read.
        progress: told how many bytes were read.
    """
    for part in group:
        goes_on = part.start > 0 and bool(state.sources) and state.sources[-1].name == part.name
        if goes_on and state.sources[-1].problem:
            continue
        for source in parts.read(part, progress):
            if not goes_on:
                yield source
            yield from entries.pieces_of(source)


@dataclass(slots=True, eq=False, repr=False)
class _Worker(Record):
    """A process, and where its result comes from."""

    process: BaseProcess
    connection: Connection

    def result(self) -> Fold | None:
        """What it found; None when it died."""
        try:
            found = pickle.loads(self.connection.recv_bytes())  # noqa: S301 - from our own process
        except EOFError:
            return None
        return found if isinstance(found, Fold) else None


def _started(group: Sequence[Part], wrapped: bool) -> _Worker:
    # A copy of this process starts at once; but a lock that another thread holds would stay locked in it.
    alone = sys.platform == "linux" and threading.active_count() == 1
    context: Any = multiprocessing.get_context("fork" if alone else "spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(group, wrapped, theirs), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _work(group: Sequence[Part], wrapped: bool, connection: Connection) -> None:
    left_to_parent()
    state = Fold(engine.shipped())
    state.wrapped = wrapped
    for piece in read(state, group, lambda _: None):
        state.add(piece)
    with suppress(BrokenPipeError):  # nobody is there any more
        connection.send_bytes(pickle.dumps(state, pickle.HIGHEST_PROTOCOL))


def is_wrapped(part: Part) -> bool:
    """Whether the first lines stand in envelopes."""
    scanner = Scanner(engine.shipped())
    for source in parts.read(part, lambda _: None):
        for lines in entries.pieces_of(source):
            if isinstance(lines, Lines):
                head = lines.text[:_HEAD].split(b"\n")
                scanner.scan(head, Counts(), lambda *_: None)
            return scanner.wrapped
    return False
