"""From what the user names (files, folders, globs, ``-``, bytes, file objects) to the files that are read."""

from __future__ import annotations

import io
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, TypeAlias

from nccl_inspect.discovery import instead_of
from nccl_inspect.errors import NoInputError
from nccl_inspect.ingest import recognition, rotation
from nccl_inspect.ingest.streams import HEAD, Pieces, StreamError, failing, pieces
from nccl_inspect.records import Record

if TYPE_CHECKING:
    from nccl_inspect.ingest.remote import Remote

Place: TypeAlias = "Path | Remote"
"""Where a file is that any process can open."""
_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*::)*[A-Za-z][A-Za-z0-9+.-]*://")
_MAX_KEPT = 16 << 20
"""Bytes of a stream that are kept, should it have to be read again."""
_TURN = f"its newest line comes first, and a stream of more than {_MAX_KEPT >> 20} MB is not turned round"
_KINDS = "a path, bytes, an open file, or a list of these"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class File(Record):
    """Something that is read: a log or an archive of logs."""

    name: str
    open: Callable[[], Pieces]
    size: int | None = None
    """Bytes as stored; None where that is not known."""
    again: bool = True
    """Whether it can be opened more than once, at no cost."""
    place: Place | None = None
    stream: Any = None
    """A file object that can be read anywhere, as zip archives need it; where there is no place."""
    problem: StreamError | None = None
    """Why it cannot be opened."""
    found: bool = False
    """Found in a folder, not named by the user."""


Beside: TypeAlias = Callable[[str, bytes], bool]
"""Whether a file in a folder is of use although it is no log, by its name and first bytes."""
Input: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | TextIO | File


def find(inputs: Input | Sequence[Input], beside: Beside | None = None) -> list[File]:
    """The files that the inputs stand for, each once; those of folders and globs in the natural order of their names.

    What was rotated away (``job.log.1``) stands before the file that goes on (``job.log``). What cannot be read is
    among them: opening it says why.

    Args:
        inputs: paths, folders, globs, ``-``, bytes or file objects.
        beside: of files in folders that are no logs, which are wanted, too: told by name and first bytes.

    Raises:
        NoInputError: nothing is given, or something that cannot be a log.
    """
    several: Sequence[Any] = inputs if isinstance(inputs, list | tuple) else [inputs]
    if not several:
        raise NoInputError("no input: the list is empty", f"give {_KINDS}")
    seen: set[object] = set()
    files = [file for item in several for file in _files(item, beside) if _is_new(file, seen)]
    return [files[place] for place in rotation.order([file.name for file in files])]


def is_url(name: str) -> bool:
    """Whether an input is an address, such as ``s3://bucket/job.log``."""
    return _URL.match(name) is not None


def lasting(files: Iterable[File]) -> list[File]:
    """The same files, of which also streams can be opened again, as long as they are short."""
    return [file if file.again else replace(file, open=_Kept(file)) for file in files]


def require_again(files: Iterable[File], turned: Iterable[str]) -> None:
    """Make sure that everything can be read once more.

    Args:
        files: that :func:`lasting` gave.
        turned: the names of those for which it has to be.

    Raises:
        NoInputError: there is a stream that was too long to be kept.
    """
    if any(isinstance(file.open, _Kept) and not file.open.is_whole for file in files):
        raise NoInputError(f"{', '.join(sorted(turned))}: {_TURN}", "… | tac | nccl-inspect summarize, or name a file")


class _Kept:
    """Opens a stream, and opens it again.

    Args:
        file: that can be opened once.
    """

    def __init__(self, file: File) -> None:
        self._file = file
        self._pieces: list[bytes] | None = None
        self._is_whole = False

    def __call__(self) -> Pieces:
        """The bytes, from the first one on."""
        if self._pieces is None:
            self._pieces = []
            return self._keeping(self._pieces)
        if self._is_whole:
            return iter(self._pieces)
        return failing(StreamError("the stream is too long to be read twice", "name a file"))()

    @property
    def is_whole(self) -> bool:
        """Whether it can be opened again."""
        return self._is_whole

    def _keeping(self, pieces: list[bytes]) -> Pieces:
        size = 0
        for piece in self._file.open():
            size += len(piece)
            if size <= _MAX_KEPT:
                pieces.append(piece)
            else:
                pieces.clear()
            yield piece
        self._is_whole = size <= _MAX_KEPT


def size(files: Iterable[File]) -> int | None:
    """Bytes of all files together, where all are known."""
    total = 0
    for file in files:
        if file.size is None:
            return None
        total += file.size
    return total


def _is_new(file: File, seen: set[object]) -> bool:
    key: object = id(file)
    if file.name == "<stdin>":
        key = file.name
    elif isinstance(file.place, Path):
        status = file.place.stat()
        key = (status.st_dev, status.st_ino)
    elif file.place:
        key = file.place
    new = key not in seen
    seen.add(key)
    return new


def _files(item: Any, beside: Beside | None) -> Iterable[File]:
    if isinstance(item, File):
        return [item]
    if isinstance(item, bytes | bytearray | memoryview):
        data = bytes(item)
        return [File("<bytes>", lambda: pieces(io.BytesIO(data)), len(data), stream=io.BytesIO(data))]
    if not isinstance(item, (str, os.PathLike)):
        return [_stream(_binary(item))]
    if item == "-":
        return [_stdin()]
    if isinstance(item, str) and is_url(item):
        return _of_url(item)
    path = Path(item)
    if "\n" in str(item) or "\0" in str(item):
        return [_unreadable(repr(str(item)[:40]), "not a path", "to read text that you have, give text.encode()")]
    if not os.path.lexists(path) and any(mark in str(item) for mark in "*?["):
        return _matching(str(item), beside)
    return _of_path(path, beside)


def _binary(item: Any) -> Any:
    """A file object, that below it where it was opened as text: so bytes that are not UTF-8 do no harm.

    Raises:
        NoInputError: it is no file object, or closed.
    """
    if isinstance(item, type) or not callable(getattr(item, "read", None)):
        raise NoInputError(f"{type(item).__name__} cannot be read as a log", f"give {_KINDS}")
    if getattr(item, "closed", False):
        raise NoInputError(f"{getattr(item, 'name', '<stream>')}: the file is closed", "open it again")
    return getattr(item, "buffer", item)


def _stream(stream: Any) -> File:
    name = getattr(stream, "name", None)
    seekable = getattr(stream, "seekable", None)
    return File(
        name if isinstance(name, str) else "<stream>",
        lambda: pieces(stream),
        again=False,
        stream=stream if seekable is not None and seekable() else None,
    )


def _stdin() -> File:
    stream = sys.stdin.buffer
    try:
        status = os.fstat(stream.fileno())
    except OSError:  # something that only looks like a file
        return replace(_stream(stream), name="<stdin>")
    size = status.st_size if stat.S_ISREG(status.st_mode) else None
    return replace(_stream(stream), name="<stdin>", size=size)


def _matching(pattern: str, beside: Beside | None) -> Iterator[File]:
    import glob  # rarely needed: shells do it

    names = sorted(glob.glob(pattern, recursive=True), key=recognition.natural)  # noqa: PTH207 - patterns may be absolute
    if not names:
        yield _unreadable(pattern, "no file matches", "check the pattern and the folder")
    for name in names:
        yield from _of_path(Path(name), beside)


def _of_path(path: Path, beside: Beside | None) -> Iterable[File]:
    try:
        status = path.stat()
    except FileNotFoundError:
        return [_unreadable(str(path), "no such file", instead_of(path, "check the path"))]
    except OSError as error:
        return [_unreadable(str(path), error.strerror or str(error), "check the path and the folders in it")]
    if stat.S_ISDIR(status.st_mode):
        return _of_folder(path, beside)
    return [_file(path, status)]


def of_file(path: Place, found: bool) -> File:
    """A file again that :func:`find` gave.

    Args:
        path: of something that is no folder.
        found: as it was.
    """
    if not isinstance(path, Path):
        return _of_object(path, found)
    try:
        return _file(path, path.stat(), found)
    except OSError as error:
        return _unreadable(str(path), error.strerror or str(error), "check the path and the folders in it")


def _file(path: Path, status: os.stat_result, found: bool = False) -> File:
    if not os.access(path, os.R_OK):
        return _unreadable(str(path), "no permission to read it", "check its mode and owner")
    if not stat.S_ISREG(status.st_mode):
        return File(str(path), lambda: _pieces(path), again=False)
    return File(str(path), lambda: _pieces(path), status.st_size, place=path, found=found)


def _of_url(url: str) -> Iterable[File]:
    from nccl_inspect.ingest import remote  # most logs are files

    try:
        return [_of_object(one, found) for one, found in remote.find(url)]
    except StreamError as error:
        return [_unreadable(remote.shown(url), error.what, error.hint)]


def _of_object(place: Remote, found: bool) -> File:
    return File(str(place), lambda: _pieces(place), place.size, again=False, place=place, found=found)


def _pieces(path: Place) -> Pieces:
    with path.open("rb", 0) as file:
        yield from pieces(file)


def _unreadable(name: str, what: str, hint: str) -> File:
    problem = StreamError(what, hint)
    return File(name, failing(problem), 0, problem=problem)


def _of_folder(folder: Path, beside: Beside | None) -> Iterator[File]:
    problems: list[OSError] = []
    files = [file for path in walk(folder, problems) if (file := of_folder_entry(folder, path, beside))]
    for problem in problems:
        name = os.fspath(problem.filename or folder)
        files.append(_unreadable(name, problem.strerror or str(problem), "check its mode and owner"))
    if not files:
        yield _unreadable(str(folder), "the folder holds no log", "name the files, or give them the suffix .log")
    yield from sorted(files, key=lambda file: recognition.natural(file.name))


def walk(folder: Path, problems: list[OSError]) -> Iterator[Path]:
    """The files below a folder, without what is hidden; links to folders are not followed.

    Args:
        folder: to begin with.
        problems: why folders could not be read; more are added.
    """
    for root, folders, names in os.walk(folder, onerror=problems.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(root, name) for name in names)


def of_folder_entry(folder: Path, path: Path, beside: Beside | None) -> File | None:
    """The file, if it looks like a log or an archive, or is wanted beside it; of most others only the name counts.

    Args:
        folder: that was named.
        path: of a file below it.
        beside: of files that are no logs, which are wanted, too.
    """
    inside = path.relative_to(folder).as_posix()
    if recognition.is_left_out(inside) and not (beside and recognition.is_document(inside)):
        return None
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return None
        with path.open("rb", buffering=0) as stream:
            head = stream.read(HEAD)
    except OSError as error:
        if not recognition.is_plausible(inside) or isinstance(error, FileNotFoundError):
            return None
        what = "no permission to read it" if isinstance(error, PermissionError) else error.strerror or str(error)
        return _unreadable(str(path), what, "check its mode and owner")
    is_log = not recognition.is_left_out(inside) and recognition.is_log(inside, head)
    if recognition.is_named_as_archive(inside) or is_log or (beside and beside(inside, head)):
        return _file(path, status, found=True)
    return None
