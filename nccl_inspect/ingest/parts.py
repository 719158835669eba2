"""Shares files out: parts of about the same size that several processes can read at once.

A log that is plain text is cut at line ends. One that is torn is not: its lines are put together over long distances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nccl_inspect.ingest import compression, entries, files, recognition, sources
from nccl_inspect.ingest.files import File, Input
from nccl_inspect.ingest.streams import BLOCK, HEAD, Pieces, StreamError, pieces
from nccl_inspect.records import Record

_SLACK = 4
"""What is larger than its share by less than the share divided by this stays whole."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Part(Record):
    """A file, or some of its lines."""

    path: Path
    found: bool = False
    """As in :class:`~nccl_inspect.ingest.files.File`."""
    start: int = 0
    end: int | None = None
    """None: up to the end of the file."""

    @property
    def is_whole(self) -> bool:
        """Whether it is a file from its beginning to its end, of whatever kind."""
        return self.start == 0 and self.end is None

    @property
    def size(self) -> int:
        """Bytes as stored."""
        return (self.path.stat().st_size if self.end is None else self.end) - self.start


def planned(inputs: Input | Sequence[Input], jobs: int, smallest: int) -> list[list[Part]]:
    """What each of several processes is to read, in the order of the inputs; nothing where one process is to read all.

    Args:
        inputs: paths, globs; with anything else there is nothing to share out.
        jobs: at most so many processes.
        smallest: bytes that are worth a process.
    """
    found = files.find(inputs) if jobs > 1 and _are_paths(inputs) else []
    paths = [file.seekable() for file in found if file.seekable]
    if not paths or len(paths) < len(found):
        return []
    total = files.size(found) or 0
    jobs = min(jobs, total // max(1, smallest))
    return _shared(found, paths, total, jobs) if jobs > 1 else []


def _are_paths(inputs: Input | Sequence[Input]) -> bool:
    several = inputs if isinstance(inputs, list | tuple) else [inputs]
    return all(isinstance(item, (str, Path)) and item != "-" for item in several)


def _shared(found: list[File], paths: list[Path], total: int, jobs: int) -> list[list[Part]]:
    share = -(-total // jobs)
    groups: list[list[Part]] = [[]]
    room = share
    for file, path in zip(found, paths, strict=True):
        start, left = 0, file.size or 0
        may_be_cut: bool | None = None
        while left > room + share // _SLACK and len(groups) < jobs:
            if room > share // _SLACK:
                may_be_cut = _is_plain(path) if may_be_cut is None else may_be_cut
                cut = _line_end(path, start + room) if may_be_cut else None
                if cut is None:
                    break
                groups[-1].append(Part(path, file.found, start, cut))
                left -= cut - start
                start = cut
            groups.append([])
            room = share
        groups[-1].append(Part(path, file.found, start))
        room -= left
    return [group for group in groups if group]


def _is_plain(path: Path) -> bool:
    """Whether a file is text that can be cut at any line end."""
    try:
        with path.open("rb", buffering=0) as file:
            head = file.read(BLOCK)
            if recognition.is_tar(head) or recognition.is_zip(head) or compression.is_packed(head):
                return False
            if entries.reader_of(head[:HEAD]):
                return False
            file.seek(0)
            return not sources.is_torn_stream(pieces(file))
    except OSError:
        return False


def _line_end(path: Path, place: int) -> int | None:
    """The first beginning of a line after a place, if one comes soon and is not the end."""
    with path.open("rb", buffering=0) as file:
        file.seek(place)
        data = file.read(BLOCK)
        end = data.find(b"\n") + 1
        return place + end if 0 < end < len(data) else None


def read(part: Part, progress: Callable[[int], None]) -> Iterator[sources.Source]:
    """The sources of a part; one of some lines of a file is read with :func:`~nccl_inspect.ingest.sources.cut_blocks`.

    Args:
        part: to read.
        progress: told after each piece how long it was.
    """
    if part.is_whole:
        file = files.of_file(part.path, part.found)
        yield from sources.of_file(file, progress)
    else:
        yield sources.Source(str(part.path), lambda: _between(part, progress), is_cut=True)


def _between(part: Part, progress: Callable[[int], None]) -> Pieces:
    try:
        with part.path.open("rb", buffering=0) as file:
            file.seek(part.start)
            left = part.end - part.start if part.end is not None else None
            while data := file.read(BLOCK if left is None else min(BLOCK, left)):
                yield data
                progress(len(data))
                left = None if left is None else left - len(data)
    except OSError as error:
        raise StreamError(error.strerror or str(error), "check the file") from None
