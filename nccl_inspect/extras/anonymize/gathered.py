"""What is handed on: the logs, the evidence beside them, and what neither is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

from nccl_inspect import artifacts
from nccl_inspect.artifacts import Kind, packed
from nccl_inspect.extras.anonymize import collected
from nccl_inspect.ingest.sources import archives, compression, files, log_detection
from nccl_inspect.ingest.sources.files import File
from nccl_inspect.ingest.sources.limits import Allowance
from nccl_inspect.ingest.sources.streams import Pieces, StreamError
from nccl_inspect.util.text import printable

Input = str | BinaryIO


class _Text:
    """Any text, where it is wanted."""

    __name__ = "text"
    KIND = "text"

    def recognises(self, _name: str, head: bytes) -> bool:
        """Whether it is text, by its first bytes."""
        return b"\0" not in head

    def read(self, _name: str, data: bytes) -> bytes:
        """The text."""
        return data


TEXT: Kind = _Text()
_OTHERS = (log_detection.UNKNOWN, log_detection.OTHER, log_detection.OWN)
"""Why a file is passed over that may be one of a collection."""


@dataclass(slots=True)
class Document:
    """A file of evidence."""

    name: str
    """As that of a source: of a member of an archive ``archive.tar.gz:path/in/it``."""
    kind: Kind
    open: Callable[[], bytes]
    """Gives its contents; a ValueError or OSError says why it cannot."""
    log: File | BinaryIO | None = None
    """The same as a log, in case the rest is one."""


@dataclass(slots=True)
class Gathered:
    """All that the inputs stand for."""

    logs: list[File | BinaryIO] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    archives: list[File] = field(default_factory=list)
    """Those among the logs whose members may be evidence."""
    passed_over: dict[str, str] = field(default_factory=dict)
    """Files that are not handed on, with the reason."""

    def evidence(self) -> Iterator[Document]:
        """All evidence; of an archive, open one before you ask for the next."""
        yield from self.documents
        for archive in self.archives:
            yield from self._members(archive)

    def _members(self, archive: File) -> Iterator[Document]:
        try:
            for member in packed.members(archive, archives.ALL):
                try:
                    head = _unpacked(member.open())
                except StreamError:  # of this member; reading it as a log says why
                    continue
                name = f"{archive.name}:{printable(member.name.removeprefix('./'))}"
                start = head[: artifacts.HEAD]
                kind = artifacts.kind_of(name, start) or collected.kind_of(name, start)
                if kind and len(head) <= artifacts.MAX_BYTES:
                    yield Document(name, kind, lambda head=head: head)  # type: ignore[misc]
                elif kind or log_detection.is_left_out(member.name) or not log_detection.is_log(member.name, head):
                    self.passed_over.setdefault(name, artifacts.TOO_LARGE if kind else log_detection.UNKNOWN)
        except (StreamError, OSError):
            return  # reading its logs says why


def gather(inputs: Sequence[Input], all_text: bool = False) -> Gathered:
    """Tell logs, evidence and all else apart.

    Args:
        inputs: paths, folders, globs, and file objects that can be read again.
        all_text: whether text that is not recognised is wanted as well.

    Raises:
        NoInputError: nothing is given.
    """
    gathered = Gathered()
    names = [item for item in inputs if isinstance(item, str)]

    def passed(name: str, why: str) -> None:
        if why in _OTHERS and (kind := collected.kind_of(name, _head(Path(name)))):
            gathered.documents.append(Document(name, kind, Path(name).read_bytes))
        elif all_text and why in (log_detection.UNKNOWN, log_detection.OTHER) and _is_text(Path(name)):
            gathered.documents.append(Document(name, TEXT, Path(name).read_bytes))
        else:
            gathered.passed_over[name] = why

    for file in files.find(names, artifacts.is_artifact, passed) if names else ():
        if isinstance(file.place, Path):
            _sort_in(gathered, file, file.place)
        else:
            gathered.logs.append(file)
    for stream in inputs:
        if not isinstance(stream, str):
            _sort_in_stream(gathered, stream)
    return gathered


def _sort_in(gathered: Gathered, file: File, path: Path) -> None:
    head = artifacts.head_of(file)
    kind = artifacts.kind_of(file.name, head)
    if kind is None:
        gathered.logs.append(file)
        if log_detection.is_named_as_archive(path.name) or log_detection.is_tar(head) or log_detection.is_zip(head):
            gathered.archives.append(file)
    elif (file.size or 0) > artifacts.MAX_BYTES:
        gathered.passed_over[file.name] = artifacts.TOO_LARGE
    else:
        gathered.documents.append(Document(file.name, kind, partial(_contents, file), file))


def _sort_in_stream(gathered: Gathered, stream: BinaryIO) -> None:
    stream.seek(0)
    kind = artifacts.kind_of("<stdin>", stream.read(artifacts.HEAD))
    stream.seek(0)
    if kind is None:
        gathered.logs.append(stream)
        return

    def whole() -> bytes:
        stream.seek(0)
        return stream.read(artifacts.MAX_BYTES)

    gathered.documents.append(Document("<stdin>", kind, whole, stream))


def _head(path: Path) -> bytes:
    try:
        with path.open("rb", buffering=0) as stream:
            return stream.read(artifacts.HEAD)
    except OSError:
        return b""


def _is_text(path: Path) -> bool:
    head = _head(path)
    return bool(head) and TEXT.recognises(path.name, head) and path.stat().st_size <= artifacts.MAX_BYTES


def _contents(file: File) -> bytes:
    try:
        data = _unpacked(file.open())
    except StreamError as error:
        raise ValueError(error.what) from None
    if len(data) > artifacts.MAX_BYTES:
        raise ValueError(artifacts.TOO_LARGE)
    return data


def _unpacked(pieces: Pieces) -> bytes:
    """As much of a file as may be read, and a little more."""
    return b"".join(_first(compression.unpacked(pieces, Allowance()), artifacts.MAX_BYTES + 1))


def _first(pieces: Iterator[bytes], most: int) -> Iterator[bytes]:
    for piece in pieces:
        yield piece
        most -= len(piece)
        if most <= 0:
            return
