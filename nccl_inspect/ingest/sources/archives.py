"""The members of tar and zip archives, read one after the other without putting anything on disk."""

from __future__ import annotations

import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NamedTuple

from nccl_inspect.ingest.sources import log_detection
from nccl_inspect.ingest.sources.streams import HEAD, Pieces, StreamError, failing, peek, pieces

_MAX_NAME = 1 << 20  # the longest name or extended header of a member: tarfile reads them whole


class Member(NamedTuple):
    """A member that looks like a log; its data can be read until the next member is asked for."""

    name: str
    open: Callable[[], Pieces]


class Wanted(NamedTuple):
    """Holds which members are given; others are skipped."""

    by_name: Callable[[str], bool]  # whether one may be wanted, by its name alone
    by_head: Callable[[str, bytes | None], bool]
    """Whether it is, by its name and first bytes; None where they cannot be read."""


LOGS = Wanted(
    lambda name: not log_detection.is_left_out(name),
    lambda name, head: log_detection.is_plausible(name) if head is None else log_detection.is_log(name, head),
)
ALL = Wanted(lambda _: True, lambda *_: True)


def read_tar(data: Pieces, wanted: Wanted = LOGS) -> Iterator[Member]:
    """Yield the logs in a tar archive, or what else is wanted, in its order.

    A StreamError says that it is damaged or breaks off, and no member has said so.
    """
    failed = False

    def read(stream: Any) -> Pieces:
        """Yield the data of a member; where it cannot be read the archive has come to its end as well."""
        nonlocal failed
        try:
            yield from pieces(stream)
        except (tarfile.TarError, StreamError) as error:
            failed = True
            raise error if isinstance(error, StreamError) else _damage_error(error) from None

    opened: Any = tarfile.open  # not all of its overloads know tarinfo
    try:
        with opened(fileobj=_Readable(data), mode="r|", tarinfo=_Checked) as archive:
            while (info := archive.next()) is not None:
                archive.members.clear()  # else it keeps them all
                if not info.isreg() or not wanted.by_name(info.name):
                    continue
                name = info.name.removeprefix("./")
                try:
                    head, member = peek(read(archive.extractfile(info)), lambda taken: len(taken) >= HEAD)
                except StreamError as error:
                    yield Member(name, failing(error))
                else:
                    if wanted.by_head(name, head):
                        yield Member(name, partial(iter, member))
                if failed:
                    return
    except tarfile.TarError as error:
        raise _damage_error(error) from None


def _damage_error(error: Exception) -> StreamError:
    return StreamError(f"the archive is damaged ({' '.join(str(error).split())})", "copy it again")


_LENGTHY = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)


class _Checked(tarfile.TarInfo):
    """Damage is an error wherever it stands; tarfile takes most of it for the end of the archive."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: Any, errors: Any) -> Any:
        try:
            info = super().frombuf(buf, encoding, errors)
        except (tarfile.TruncatedHeaderError, tarfile.InvalidHeaderError) as error:  # type: ignore[attr-defined]
            raise _damage_error(error) from None
        if info.type in _LENGTHY and info.size > _MAX_NAME:
            raise StreamError("the archive has a member whose name is too long", "pack the logs again")
        return info


class _Readable:
    """Pieces as a file that can only be read on."""

    def __init__(self, data: Pieces) -> None:
        self._data = data
        self._piece = memoryview(b"")

    def read(self, size: int) -> bytes:
        """Return some bytes, none at the end."""
        if not self._piece:
            self._piece = memoryview(next(self._data, b""))
        taken, self._piece = self._piece[:size], self._piece[size:]
        return bytes(taken)


def read_zip(file: Any, count: Callable[[int], None], wanted: Wanted = LOGS) -> Iterator[Member]:
    """Yield the logs in a zip archive, or what else is wanted, in the natural order of their names.

    A StreamError says that their list cannot be read.
    """
    with ExitStack() as opened:
        stream = opened.enter_context(file.open("rb")) if hasattr(file, "open") else file
        try:
            archive = opened.enter_context(zipfile.ZipFile(stream))
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, struct.error) as error:
            raise _damage_error(error) from None
        for info in sorted(archive.infolist(), key=lambda info: log_detection.natural(info.filename)):
            kind = stat.S_IFMT(info.external_attr >> 16)
            is_file = info.filename[-1:] not in ("", "/") and kind in (0, stat.S_IFREG)
            if is_file and wanted.by_name(info.filename):
                data = partial(_read_zip_member, archive, info)
                head: bytes | None = None
                with suppress(StreamError):
                    head, _ = peek(data(), lambda taken: len(taken) >= HEAD)
                if wanted.by_head(info.filename, head):
                    yield Member(info.filename, data)
            count(info.compress_size)


def _read_zip_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Pieces:
    try:
        with archive.open(info) as stream:
            yield from pieces(stream)
    except (NotImplementedError, RuntimeError) as error:  # packed in an unknown way; needs a password
        raise StreamError(" ".join(str(error).split()), "unpack it and name the folder") from None
    except Exception as error:  # of zipfile, its decoders, or the store that the archive is in
        raise _damage_error(error) from None
