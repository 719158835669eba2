"""Reads the parts of a log in several processes, and puts together what they found.

A log that is plain text is cut at line ends. One that is torn is not: its lines are put together over long distances;
nor is one in UTF-16, or with the mark of an encoding: what decides how it is read is at its beginning only.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from nccl_inspect.grammar import engine
from nccl_inspect.ingest.lines.torn import LOOK_AHEAD
from nccl_inspect.ingest.sources import blocks, compression, files, log_detection, streams
from nccl_inspect.ingest.sources.blocks import Lines
from nccl_inspect.ingest.sources.files import File, Input
from nccl_inspect.ingest.sources.streams import BLOCK, HEAD, Pieces, StreamError, check_size, failing, pieces
from nccl_inspect.model.fold import Fold
from nccl_inspect.pipeline.reader import Piece, Reader
from nccl_inspect.scanning.found import Counts, Known
from nccl_inspect.scanning.scanner import Scanner
from nccl_inspect.util import processes
from nccl_inspect.util.records import Frozen


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
        goes_on = part.start > 0 and bool(state.sources) and state.sources[-1].name == part.name
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


class Part(Frozen):
    """A file, or some of its lines."""

    name: str
    place: Path | None
    found: bool = False  # as in :class:`~nccl_inspect.ingest.sources.files.File`
    start: int = 0
    end: int | None = None  # none: up to the end of the file
    size: int = 0  # bytes as stored
    problem: tuple[str, str] | None = None  # why there is nothing to read, and what to do about it
    without: frozenset[str] = frozenset()  # as in :class:`~nccl_inspect.ingest.sources.files.File`

    @property
    def is_whole(self) -> bool:
        """Return whether it is a file from its beginning to its end, of whatever kind."""
        return self.start == 0 and self.end is None


def plan_parts(inputs: Input | Sequence[Input], jobs: int, smallest: int) -> list[list[Part]]:
    """Return what each of several processes is to read, in order of the inputs; nothing where one is to read all."""
    can_be_shared = all(  # any process could open it, or would say why it cannot
        item.place is not None or item.problem is not None
        if isinstance(item, File)
        else isinstance(item, (str, Path)) and item != "-"
        for item in (inputs if isinstance(inputs, list | tuple) else [inputs])
    )
    inputs_found = files.find(inputs) if jobs > 1 and can_be_shared else []
    if not all(file.place for file in inputs_found):
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
        can_cut = left > room + slack and len(groups) < jobs and _is_plain(file.place)
        while left > room + slack and len(groups) < jobs:
            if room > slack:
                data = b""
                with suppress(StreamError, OSError):
                    data = _read(file.place, start + room) if can_cut else b""
                cut = start + room + data.find(b"\n") + 1
                if not start + room < cut < start + room + len(data):  # no line ends soon, or only the last one
                    break
                groups[-1].append(Part(file.name, file.place, file.found, start, cut, cut - start))
                left -= cut - start
                start = cut
            groups.append([])
            room = share
        problem = (file.problem.what, file.problem.hint) if file.problem else None
        groups[-1].append(Part(file.name, file.place, file.found, start, None, left, problem, file.without))
        room -= left
    return [group for group in groups if group]


def _is_plain(place: Path | None) -> bool:
    """Return whether a file is text that can be cut at any line end, and not torn."""
    try:
        head = _read(place, 0)
        if log_detection.is_tar(head) or log_detection.is_zip(head) or compression.is_packed(head):
            return False
        if place is None or streams.find_encoding(head) or blocks.reader_of(head[:HEAD]):
            return False
        with place.open("rb", 0) as file:
            begin = islice(pieces(file), LOOK_AHEAD // BLOCK + 1)
            return not any(lines.mended for lines in blocks.cut(begin))
    except (StreamError, OSError):
        return False


def _read(place: Path | None, start: int) -> bytes:
    if place is None:
        return b""
    with place.open("rb", 0) as file:
        file.seek(start)
        return file.read(BLOCK) or b""


def open_part(part: Part, progress: Callable[[int], None]) -> Iterator[blocks.Source]:
    """Yield the sources of a part; one of some lines of a file is read as it is."""
    if part.place is None:
        yield blocks.Source(part.name, failing(StreamError(*part.problem or ("not found", ""))))
    elif part.is_whole:
        file = files.find_regular(part.place, part.found)
        data = partial(check_size, size=part.size)
        as_planned = replace(file, name=part.name, without=part.without, open=lambda: data(file.open()))
        yield from blocks.open_file(as_planned, progress)
    else:
        data = partial(_read_part, part.place, part.start, part.end or sys.maxsize)
        yield blocks.Source(
            part.name, lambda: check_size(streams.count_lengths(data(), progress), part.size), is_cut=True
        )


def _read_part(place: Path, at: int, end: int) -> Pieces:
    with place.open("rb", 0) as file:
        file.seek(at)
        while data := file.read(min(BLOCK, end - at)):
            yield data
            at += len(data)
