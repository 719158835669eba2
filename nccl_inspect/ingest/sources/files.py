"""From what a user names (files, folders, globs, ``-``, bytes, streams) to what is read, and why others are not."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeAlias

from nccl_inspect.errors import NoInputError
from nccl_inspect.ingest.sources import log_detection
from nccl_inspect.ingest.sources.log_detection import OTHER, OWN, UNKNOWN
from nccl_inspect.ingest.sources.streams import HEAD, Pieces, StreamError, check_size, failing, pieces
from nccl_inspect.util.discovery import suggest_path
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Frozen

_WILD = frozenset("*?[")
STDIN = "<stdin>"  # the name of standard input
MAX_KEPT = 16 << 20  # bytes of a stream that are kept, should it have to be read again
_KINDS = "a path, bytes, an open file, or a list of these"


class File(Frozen):
    """Something that is read: a log or an archive of logs."""

    name: str
    open: Callable[[], Pieces]
    size: int | None = None  # bytes as stored; None where that is not known
    again: bool = True  # whether it can be opened more than once, at no cost
    place: Path | None = None  # where it is, if any process can open it
    stream: Any = None  # a seekable file object, as zip archives need it, for an input that has none
    problem: StreamError | None = None  # why it cannot be opened
    found: bool = False  # found in a folder, not named by the user
    without: frozenset[str] = frozenset()  # members of an archive that are not logs, whatever they look like: evidence


Beside: TypeAlias = Callable[[str, bytes], bool]
"""Whether a file in a folder is of use although it is not a log, by its name and first bytes."""
Pass: TypeAlias = Callable[[str, str], None]  # takes the name of a file in a folder that is of no use, and why
Input: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | TextIO | File


def find(inputs: Input | Sequence[Input], beside: Beside | None = None, passed: Pass | None = None) -> list[File]:
    """Return the files of the inputs, each once; those of folders and globs in the natural order of their names.

    What was rotated away (``job.log.1``) comes before the current file (``job.log``). What cannot be read is
    among them: opening it says why.

    Args:
        inputs: paths, folders, globs, ``-``, bytes or file objects.
        beside: of files in folders that are not logs, which are also wanted, recognized by name and first bytes.
        passed: takes those files in folders that are neither, with the reason.

    A NoInputError says that nothing is given, or something that cannot be a log.
    """
    several: Sequence[Any] = inputs if isinstance(inputs, list | tuple) else [inputs]
    if not several:
        raise NoInputError("no input: the list is empty", f"give {_KINDS}")
    seen: set[object] = set()
    passed = passed or (lambda _name, _why: None)
    files = []
    for file in (file for item in several for file in _files(item, beside, passed)):
        key: object = file.name if file.name == STDIN else id(file)
        if file.place:
            status = file.place.stat()
            key = (status.st_dev, status.st_ino)
        if key not in seen:
            seen.add(key)
            files.append(file)
    return [files[place] for place in order([file.name for file in files])]


def require_path(name: str) -> None:
    """Make sure that an input exists, if it is a path and nothing else; a NoInputError says that it does not."""
    if name == "-" or not _WILD.isdisjoint(name) or os.path.lexists(name):
        return
    for file in find(name):
        if file.problem:
            raise NoInputError(f"{file.name}: {file.problem.what}", file.problem.hint)


def can_read_again(files: Iterable[File]) -> bool:
    """Return whether everything can be read once more: no stream is too long to be kept."""
    return all(file.open.is_whole for file in files if isinstance(file.open, Kept))


class Kept:
    """Opens a stream, and opens it again if it was short."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._pieces: list[bytes] = []
        self._size = 0
        self.is_whole = False  # whether it can be opened again

    def __call__(self) -> Pieces:
        """Yield the bytes, from the first one on."""
        if self.is_whole:
            yield from self._pieces
            return
        if self._size:
            raise StreamError("the stream is too long to be read twice", "name a file")
        for piece in self._file.open():
            self._size += len(piece)
            if self._size <= MAX_KEPT:
                self._pieces.append(piece)
            else:
                self._pieces.clear()
            yield piece
        self.is_whole = self._size <= MAX_KEPT


def size(files: Iterable[File]) -> int | None:
    """Return the bytes of all files together, where all are known."""
    sizes = [file.size for file in files]
    return None if None in sizes else sum(filter(None, sizes))


def _files(item: Any, beside: Beside | None, passed: Pass) -> Iterable[File]:
    if isinstance(item, File):
        return [item]
    if isinstance(item, bytes | bytearray | memoryview):
        data = bytes(item)
        return [File("<bytes>", lambda: pieces(io.BytesIO(data)), len(data), stream=io.BytesIO(data))]
    if not isinstance(item, (str, os.PathLike)):
        if isinstance(item, type) or not callable(getattr(item, "read", None)):
            raise NoInputError(f"{type(item).__name__} cannot be read as a log", f"give {_KINDS}")
        if getattr(item, "closed", False):
            raise NoInputError(f"{getattr(item, 'name', '<stream>')}: the file is closed", "open it again")
        # Where it was opened as text, that below it: so bytes that are not UTF-8 do no harm.
        return [_stream(getattr(item, "buffer", item))]
    if item == "-":
        stdin = replace(_stream(sys.stdin.buffer), name=STDIN)
        with suppress(OSError):  # something that only looks like a file
            status = os.fstat(sys.stdin.buffer.fileno())
            return [replace(stdin, size=status.st_size if stat.S_ISREG(status.st_mode) else None)]
        return [stdin]
    if "://" in str(item) and not os.path.lexists(item):
        from nccl_inspect.util.secrets import mask_secrets  # it may hold some

        name = mask_secrets(str(item).partition("?")[0])
        return [unreadable(name, "a URL, which is not read", "fetch it: curl URL | nccl-inspect")]
    path = Path(item)
    if "\n" in str(item) or "\0" in str(item):
        return [unreadable(repr(str(item)[:40]), "not a path", "to pass text itself, give text.encode()")]
    if not os.path.lexists(path) and any(mark in str(item) for mark in "*?["):
        import glob  # rarely needed: shells do it

        names = sorted(glob.glob(str(item), recursive=True), key=log_detection.natural)  # noqa: PTH207 - may be absolute
        if not names:
            return [unreadable(str(item), "no file matches", "check the pattern and the folder")]
        return (file for name in names for file in _find_path(Path(name), beside, passed))
    return _find_path(path, beside, passed)


def _stream(stream: Any) -> File:
    name = getattr(stream, "name", None)
    seekable = getattr(stream, "seekable", None)
    return File(
        name if isinstance(name, str) else "<stream>",
        lambda: pieces(stream),
        again=False,
        stream=stream if seekable is not None and seekable() else None,
    )


def _find_path(path: Path, beside: Beside | None, passed: Pass) -> Iterator[File]:
    """Yield a file, or the files below a folder in the natural order of their names, without what is hidden there."""
    if not os.path.isdir(path):  # noqa: PTH112 - that of a path raises where a name is too long
        yield find_regular(path)
        return
    problems: list[OSError] = []
    found = [file for inner in walk_folder(path, problems) if (file := find_entry(path, inner, beside, passed))]
    for problem in problems:
        name = os.fspath(problem.filename or path)
        found.append(unreadable(name, problem.strerror or str(problem), "check its mode and owner"))
    if not found:
        yield unreadable(str(path), "the folder holds no log", "name the files, or give them the suffix .log")
    yield from sorted(found, key=lambda file: log_detection.natural(file.name))


def find_regular(path: Path, found: bool = False) -> File:
    """Return a file on disk."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return unreadable(str(path), "no such file", suggest_path(path, "check the path"))
    except OSError as error:
        return unreadable(str(path), error.strerror or str(error), "check the path and its parent folders")
    if not os.access(path, os.R_OK):
        return unreadable(str(path), "no read permission", "check its mode and owner")
    if not stat.S_ISREG(status.st_mode):
        return File(str(path), lambda: _pieces(path), again=False)
    size = status.st_size
    return File(str(path), lambda: check_size(_pieces(path), size), size, place=path, found=found)


def _pieces(path: Path) -> Pieces:
    with path.open("rb", 0) as file:
        yield from pieces(file)


def unreadable(name: str, what: str, hint: str) -> File:
    """Return what can be opened only to say why it cannot."""
    problem = StreamError(what, hint)
    return File(name, failing(problem), 0, problem=problem)


_PACKED = r"(?:\.(?:gz|zst|xz|bz2))?"
_NUMBERED = compile_later(rf"(?P<base>.+)\.(?P<number>\d{{1,3}}){_PACKED}")
_DATED = compile_later(rf"(?P<base>.+)[.-](?P<date>\d{{4}}-?\d\d-?\d\d(?:[-_T]?\d\d[:-]?\d\d(?:[:-]?\d\d)?)?){_PACKED}")
_PREVIOUS = compile_later(rf"(?P<stem>.+)[._-](?:previous|prev|old)(?P<suffix>\.[A-Za-z]+)?{_PACKED}")


def order(names: Sequence[str]) -> list[int]:
    """Return the places of files in the order to read them: rotated files come before the current one."""
    if len(names) == 1:
        return [0]
    places = {name: place for place, name in enumerate(names)}

    def key(place: int) -> tuple[int, bool, int, str]:
        """Return the place of the current file, how many came after this one, and when it was put aside."""
        base, number, date = "", 0, ""
        if match := _NUMBERED.fullmatch(names[place]):
            base, number = match["base"], int(match["number"])
        elif match := _DATED.fullmatch(names[place]):
            base, date = match["base"], re.sub(r"\D", "", match["date"])
        elif match := _PREVIOUS.fullmatch(names[place]):
            base = match["stem"] + (match["suffix"] or "")
        return (places[base], False, -number, date) if base in places else (place, True, 0, "")

    return sorted(range(len(names)), key=key)


_SPECIAL = {
    stat.S_IFSOCK: log_detection.SOCKET,
    stat.S_IFIFO: log_detection.PIPE,
    stat.S_IFCHR: log_detection.DEVICE,
    stat.S_IFBLK: log_detection.DEVICE,
    stat.S_IFDIR: log_detection.FOLDER_LINK,
}
_LINKS = {errno.ENOENT: log_detection.NO_LINK, errno.ELOOP: log_detection.LOOP}


def walk_folder(folder: Path, problems: list[OSError]) -> Iterator[Path]:
    """Yield the files below a folder, without what is hidden; links to folders are not followed."""
    for root, folders, names in os.walk(folder, onerror=problems.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (path for name in folders if (path := Path(root, name)).is_symlink())
        yield from (Path(root, name) for name in names if not name.startswith("."))


def find_entry(folder: Path, path: Path, beside: Beside | None, passed: Pass) -> File | None:
    """Return the file, if it looks like a log or an archive, or is wanted beside it; mostly the name decides."""
    inside = "/".join(path.parts[len(folder.parts) :])
    if log_detection.is_left_out(inside) and not (beside and log_detection.is_document(inside)):
        passed(str(path), OTHER)
        return None
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            passed(str(path), _SPECIAL.get(stat.S_IFMT(status.st_mode), "no regular file"))
            return None
        with path.open("rb", buffering=0) as stream:
            head = stream.read(HEAD)
    except OSError as error:
        what = "no read permission" if isinstance(error, PermissionError) else error.strerror or str(error)
        if error.errno in _LINKS or not log_detection.is_plausible(inside):
            passed(str(path), _LINKS.get(error.errno or 0, what))
            return None
        return unreadable(str(path), what, "check its mode and owner")
    is_log = not log_detection.is_left_out(inside) and log_detection.is_log(inside, head)
    if log_detection.is_named_as_archive(inside) or is_log or (beside and beside(inside, head)):
        return find_regular(path, found=True)
    passed(str(path), explain_passing(head))
    return None


def explain_passing(head: bytes) -> str:
    """Return why a file that could be read is neither a log nor wanted."""
    if not head:
        return log_detection.EMPTY
    text = log_detection.unpack_head(head)
    if text and log_detection.is_report(text):
        return OWN
    return UNKNOWN if head.strip(b"\0") else log_detection.ZEROS
