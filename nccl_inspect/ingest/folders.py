"""The files of a folder: the logs among them, what is wanted beside them, and why the others are passed over."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from nccl_inspect.ingest.sources import log_detection
from nccl_inspect.ingest.sources.files import Beside, File, Pass, find_regular, unreadable
from nccl_inspect.ingest.sources.log_detection import OTHER, OWN, UNKNOWN
from nccl_inspect.ingest.sources.streams import HEAD

_SPECIAL = {
    stat.S_IFSOCK: log_detection.SOCKET,
    stat.S_IFIFO: log_detection.PIPE,
    stat.S_IFCHR: log_detection.DEVICE,
    stat.S_IFBLK: log_detection.DEVICE,
    stat.S_IFDIR: log_detection.FOLDER_LINK,
}
_LINKS = {errno.ENOENT: log_detection.NO_LINK, errno.ELOOP: log_detection.LOOP}
_DENIED = "no read permission"


def find_in_folder(folder: Path, beside: Beside | None, passed: Pass) -> Iterator[File]:
    """Yield the files below a folder, in the natural order of their names.

    Args:
        folder: where to look; what is hidden there counts for nothing.
        beside: decides which files that are not logs are wanted.
        passed: called with the name of each other file and the reason.
    """
    problems: list[OSError] = []
    files = [file for path in walk(folder, problems) if (file := entry(folder, path, beside, passed))]
    for problem in problems:
        name = os.fspath(problem.filename or folder)
        files.append(unreadable(name, problem.strerror or str(problem), "check its mode and owner"))
    if not files:
        yield unreadable(str(folder), "the folder holds no log", "name the files, or give them the suffix .log")
    yield from sorted(files, key=lambda file: log_detection.natural(file.name))


def walk(folder: Path, problems: list[OSError]) -> Iterator[Path]:
    """Yield the files below a folder, without what is hidden; links to folders are not followed.

    Args:
        folder: to begin with.
        problems: why folders could not be read; more are added.
    """
    for root, folders, names in os.walk(folder, onerror=problems.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (path for name in folders if (path := Path(root, name)).is_symlink())
        yield from (Path(root, name) for name in names if not name.startswith("."))


def entry(folder: Path, path: Path, beside: Beside | None, passed: Pass) -> File | None:
    """Return the file, if it looks like a log or an archive, or is wanted beside it; mostly the name decides.

    Args:
        folder: that was named.
        path: of a file below it.
        beside: decides which files that are not logs are wanted.
        passed: called with its name and the reason if it is of no use.
    """
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
        if error.errno in _LINKS or not log_detection.is_plausible(inside):
            denied = _DENIED if isinstance(error, PermissionError) else error.strerror or str(error)
            passed(str(path), _LINKS.get(error.errno or 0, denied))
            return None
        what = _DENIED if isinstance(error, PermissionError) else error.strerror or str(error)
        return unreadable(str(path), what, "check its mode and owner")
    is_log = not log_detection.is_left_out(inside) and log_detection.is_log(inside, head)
    if log_detection.is_named_as_archive(inside) or is_log or (beside and beside(inside, head)):
        return find_regular(path, status, found=True)
    passed(str(path), why(head))
    return None


def why(head: bytes) -> str:
    """Why a file that could be read is neither a log nor wanted."""
    if not head:
        return log_detection.EMPTY
    text = log_detection.unpack_head(head)
    if text and log_detection.is_report(text):
        return OWN
    return UNKNOWN if head.strip(b"\0") else log_detection.ZEROS
