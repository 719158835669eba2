"""The files of a folder: the logs among them, what is wanted beside them, and why the others are passed over."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from nccl_inspect.ingest import compression, recognition
from nccl_inspect.ingest.files import Beside, File, Pass, of_regular, unreadable
from nccl_inspect.ingest.recognition import OTHER, OWN, UNKNOWN
from nccl_inspect.ingest.streams import HEAD

_SPECIAL = {
    stat.S_IFSOCK: recognition.SOCKET,
    stat.S_IFIFO: recognition.PIPE,
    stat.S_IFCHR: recognition.DEVICE,
    stat.S_IFBLK: recognition.DEVICE,
    stat.S_IFDIR: recognition.FOLDER_LINK,
}
_LINKS = {errno.ENOENT: recognition.NO_LINK, errno.ELOOP: recognition.LOOP}
_DENIED = "no permission to read it"


def of_folder(folder: Path, beside: Beside | None, passed: Pass) -> Iterator[File]:
    """The files below a folder, in the natural order of their names.

    Args:
        folder: where to look; what is hidden there counts for nothing.
        beside: which files are wanted that are no logs.
        passed: takes the name of each other file, and why it is none.
    """
    problems: list[OSError] = []
    found = [file for path in walk(folder, problems) if (file := entry(folder, path, beside, passed))]
    for problem in problems:
        name = os.fspath(problem.filename or folder)
        found.append(unreadable(name, problem.strerror or str(problem), "check its mode and owner"))
    if not found:
        yield unreadable(str(folder), "the folder holds no log", "name the files, or give them the suffix .log")
    yield from sorted(found, key=lambda file: recognition.natural(file.name))


def walk(folder: Path, problems: list[OSError]) -> Iterator[Path]:
    """The files below a folder, without what is hidden; links to folders are not followed.

    Args:
        folder: to begin with.
        problems: why folders could not be read; more are added.
    """
    for root, folders, names in os.walk(folder, onerror=problems.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (path for name in folders if (path := Path(root, name)).is_symlink())
        yield from (Path(root, name) for name in names if not name.startswith("."))


def entry(folder: Path, path: Path, beside: Beside | None, passed: Pass) -> File | None:
    """The file, if it looks like a log or an archive, or is wanted beside it; of most others only the name counts.

    Args:
        folder: that was named.
        path: of a file below it.
        beside: which files are wanted that are no logs.
        passed: takes its name where it is of no use, and why.
    """
    inside = path.relative_to(folder).as_posix()
    if recognition.is_left_out(inside) and not (beside and recognition.is_document(inside)):
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
        if error.errno in _LINKS or not recognition.is_plausible(inside):
            denied = _DENIED if isinstance(error, PermissionError) else error.strerror or str(error)
            passed(str(path), _LINKS.get(error.errno or 0, denied))
            return None
        what = _DENIED if isinstance(error, PermissionError) else error.strerror or str(error)
        return unreadable(str(path), what, "check its mode and owner")
    is_log = not recognition.is_left_out(inside) and recognition.is_log(inside, head)
    if recognition.is_named_as_archive(inside) or is_log or (beside and beside(inside, head)):
        return of_regular(path, status, found=True)
    passed(str(path), why(head))
    return None


def why(head: bytes) -> str:
    """Why a file that could be read is neither a log nor wanted."""
    if not head:
        return recognition.EMPTY
    if compression.is_packed(head):
        return UNKNOWN
    return OWN if recognition.is_report(head) else recognition.ZEROS if not head.strip(b"\0") else UNKNOWN
