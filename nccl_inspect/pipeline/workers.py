"""Reads the parts of a log in several processes, and puts together what they found.

A log that is plain text is cut at line ends. One that is torn is not: its lines are put together over long distances;
nor is one in UTF-16, or with the mark of an encoding: what decides how it is read is at its beginning only.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from nccl_inspect.grammar import engine
from nccl_inspect.ingest.lines.torn import LOOK_AHEAD
from nccl_inspect.ingest.sources import blocks, compression, files, log_detection, streams
from nccl_inspect.ingest.sources.blocks import Lines
from nccl_inspect.ingest.sources.files import File, Input
from nccl_inspect.ingest.sources.streams import BLOCK, HEAD, Pieces, StreamError, check_size
from nccl_inspect.model.fold import Fold
from nccl_inspect.pipeline.reader import Piece, Reader
from nccl_inspect.scanning.found import Counts, Known
from nccl_inspect.scanning.scanner import Scanner
from nccl_inspect.util import processes


def share_work(state: Fold, groups: Sequence[Sequence[Part]], progress: Callable[[int], None]) -> Iterator[Piece]:
    """Yield what is to be added to a fold; all groups but the first are read by processes of their own.

    The result is that of one process: where merging would not give exactly that, the part is read again here.
    """
    scanner = Scanner(engine.load_grammar())  # what the first lines show about how all are to be read
    first = (lines for source in open_part(groups[0][0], lambda _: None) for lines in blocks.records_of(source))
    if isinstance(lines := next(first, None), Lines):
        scanner.scan(lines.text[:HEAD].split(b"\n"), Counts(), lambda *_: None)
    known = scanner.memory
    with processes.Helpers() as helpers:
        started = [helpers.start(_work, group, known, os.getpid()) for group in groups[1:]]
        yield from read(state, groups[0], progress)
        for group, helper in zip(groups[1:], started, strict=True):
            piece = helper.result()
            if isinstance(piece, Fold) and state.can_merge(piece):
                yield piece
                progress(sum(part.size for part in group))
            else:
                yield from read(state, group, progress)


def read(state: Fold, group: Sequence[Part], progress: Callable[[int], None]) -> Iterator[Piece]:
    """Yield what is to be added to a fold, read here."""
    for part in group:
        goes_on = part.start > 0 and bool(state.sources) and state.sources[-1].name == part.file.name
        if goes_on and state.sources[-1].problem:
            continue
        for source in open_part(part, progress):
            if not goes_on:
                yield source
            yield from blocks.records_of(source)


def _work(group: Sequence[Part], known: Known, parent: int) -> Fold:
    reader = Reader(Fold(known))
    for piece in read(reader.fold, group, lambda _: processes.end_unless_child_of(parent)):
        reader.add(piece)
    return reader.fold


_SLACK = 4  # what is larger than its share by less than the share divided by this stays whole
_FIRST = 0.85
"""How much the first process reads, as a part of what each other does: most of what is new comes at the beginning of a
log, and it puts together what the others found."""


class Part(NamedTuple):
    """A file, or some of its lines."""

    file: File
    start: int = 0
    end: int | None = None  # none: up to the end of the file
    size: int = 0  # bytes as stored


def plan_parts(inputs: Input | Sequence[Input], jobs: int, smallest: int) -> list[list[Part]]:
    """Return what each of several processes is to read, in order of the inputs; nothing where one is to read all."""
    inputs_found = files.find(inputs) if jobs > 1 else []
    if not all(file.place for file in inputs_found):  # any process can open it
        return []
    total = files.size(inputs_found) or 0
    jobs = min(jobs, total // max(1, smallest))
    if jobs <= 1:
        return []
    share = math.ceil(total / (jobs - 1 + _FIRST))
    groups: list[list[Part]] = [[]]
    room = math.ceil(share * _FIRST)
    slack = room // _SLACK
    for file in inputs_found:
        start, left = 0, file.size or 0
        can_cut = left > room + slack and len(groups) < jobs and _is_plain(file)
        while left > room + slack and len(groups) < jobs:
            if room > slack:
                data = b""
                with suppress(StreamError, OSError):
                    data = _read(file, start + room) if can_cut else b""
                cut = start + room + data.find(b"\n") + 1
                if not start + room < cut < start + room + len(data):  # no line ends soon, or only the last one
                    break
                groups[-1].append(Part(file, start, cut, cut - start))
                left -= cut - start
                start = cut
            groups.append([])
            room = share
        groups[-1].append(Part(file, start, None, left))
        room -= left
    return [group for group in groups if group]


def _is_plain(file: File) -> bool:
    """Return whether a file is text that can be cut at any line end, and not torn."""
    try:
        head = _read(file, 0)
        if log_detection.is_tar(head) or log_detection.is_zip(head) or compression.is_packed(head):
            return False
        if streams.find_encoding(head) or blocks.reader_of(head[:HEAD]):
            return False
        begin = islice(_read_from(file, 0), LOOK_AHEAD // BLOCK + 1)
        return not any(lines.mended for lines in blocks.cut(begin))
    except (StreamError, OSError):
        return False


def _read(file: File, start: int) -> bytes:
    return next(_read_from(file, start), b"")


def _read_from(file: File, at: int, end: int | None = None) -> Pieces:
    assert file.place is not None
    with file.place.open("rb", 0) as stream:
        stream.seek(at)
        while data := stream.read(BLOCK if end is None else min(BLOCK, end - at)):
            yield data
            at += len(data)


def open_part(part: Part, progress: Callable[[int], None]) -> Iterator[blocks.Source]:
    """Yield the sources of a part; one of some lines of a file is read as it is."""
    if part.start == 0 and part.end is None:  # a file of whatever kind
        yield from blocks.open_file(part.file, progress)
        return

    def read_lines() -> Pieces:
        data = _read_from(part.file, part.start, part.end)
        return check_size(streams.count_lengths(data, progress), part.size)

    yield blocks.Source(part.file.name, read_lines, is_cut=True)
