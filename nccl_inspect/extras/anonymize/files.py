"""The files that are handed on: what the inputs stand for, and where the anonymized files go."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from nccl_inspect import artifacts
from nccl_inspect.artifacts import Kind, packed
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras.anonymize.evidence import find_layout
from nccl_inspect.ingest.sources import archives, compression, files, log_detection
from nccl_inspect.ingest.sources.files import File
from nccl_inspect.ingest.sources.limits import Allowance
from nccl_inspect.ingest.sources.streams import Pieces, StreamError
from nccl_inspect.util import atomic_files
from nccl_inspect.util.text import escape_controls

# --- inputs -------------------------------------------------------------------------------------------------------


Input = str | BinaryIO


class _AnyText:
    """Any text, where it is wanted."""

    __name__ = "text"
    KIND = "text"

    def recognises(self, _name: str, head: bytes) -> bool:
        """Return whether it is text, by its first bytes."""
        return b"\0" not in head

    def read(self, _name: str, data: bytes) -> bytes:
        """Return the text."""
        return data


TEXT: Kind = _AnyText()
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
        """Yield all evidence; of an archive, open one before you ask for the next."""
        yield from self.documents
        for archive in self.archives:
            yield from self._members(archive)

    def _members(self, archive: File) -> Iterator[Document]:
        try:
            for member in packed.members(archive, archives.ALL):
                try:
                    head = _unpack(member.open())
                except StreamError:  # of this member; reading it as a log says why
                    continue
                name = f"{archive.name}:{escape_controls(member.name.removeprefix('./'))}"
                start = head[: artifacts.HEAD]
                kind = artifacts.kind_of(name, start) or find_layout(name, start)
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

    def pass_over(name: str, why: str) -> None:
        path = Path(name)
        head = _head(path)
        kind = find_layout(name, head) if why in _OTHERS else None
        if kind is None and all_text and why in (log_detection.UNKNOWN, log_detection.OTHER):
            is_text = head and TEXT.recognises(name, head) and path.stat().st_size <= artifacts.MAX_BYTES
            kind = TEXT if is_text else None
        if kind:
            gathered.documents.append(Document(name, kind, path.read_bytes))
        else:
            gathered.passed_over[name] = why

    for file in files.find(names, artifacts.is_artifact, pass_over) if names else ():
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
        gathered.documents.append(Document(file.name, kind, partial(_file_contents, file), file))


def _sort_in_stream(gathered: Gathered, stream: BinaryIO) -> None:
    stream.seek(0)
    kind = artifacts.kind_of("<stdin>", stream.read(artifacts.HEAD))
    stream.seek(0)
    if kind is None:
        gathered.logs.append(stream)
        return

    def read_whole() -> bytes:
        stream.seek(0)
        return stream.read(artifacts.MAX_BYTES)

    gathered.documents.append(Document("<stdin>", kind, read_whole, stream))


def _head(path: Path) -> bytes:
    try:
        with path.open("rb", buffering=0) as stream:
            return stream.read(artifacts.HEAD)
    except OSError:
        return b""


def _file_contents(file: File) -> bytes:
    try:
        data = _unpack(file.open())
    except StreamError as error:
        raise ValueError(error.what) from None
    if len(data) > artifacts.MAX_BYTES:
        raise ValueError(artifacts.TOO_LARGE)
    return data


def _unpack(pieces: Pieces) -> bytes:
    """Return as much of a file as may be read, and a little more."""
    data = bytearray()
    for piece in compression.unpacked(pieces, Allowance()):
        data += piece
        if len(data) > artifacts.MAX_BYTES:
            break
    return bytes(data)


# --- the output ---------------------------------------------------------------------------------------------------


_PACKED = (".gz", ".bz2", ".xz", ".zst", ".zstd", ".lzma")
_ARCHIVES = (".tar.gz", ".tgz")
_HINT = "name another one with -o"


class Target:
    """The output: a single file, a folder or an archive.

    Args:
        several: whether there is a file for each input.
        rename: gives the new name of a file within a folder.
        stack: closes what is open at the end.

    Raises:
        NcclInspectError: several files and no folder.
    """

    def __init__(
        self, output: str, roots: Iterable[str], several: bool, rename: Callable[[str], str], stack: ExitStack
    ) -> None:
        self._output = output
        self._roots = [Path(root) for root in roots]
        self._rename = rename
        self._used: set[Path] = set()
        self.is_archive = output.endswith(_ARCHIVES)
        self.folder: Path | None = None
        """None for a single file."""
        if self.is_archive:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nccl-anonymize-")))
        elif several or output.endswith("/") or Path(output).is_dir():
            self.folder = Path(output)
        if self.folder and output == "-":
            raise NcclInspectError("several files", "name a folder for them: -o FOLDER, or -o FILE.tar.gz")
        if self.folder and self.folder.exists() and not self.folder.is_dir():
            raise NcclInspectError(f"{output}: several files, and this is not a folder", _HINT)

    def guard(self, inputs: Iterable[Path], overwrite: bool) -> None:
        """Make sure that nothing is overwritten that is of use.

        Args:
            inputs: all files that are read.
            overwrite: whether the folder may hold files.
        """
        own = self.folder if self.folder and not self.is_archive else None
        if own and not overwrite and own.is_dir() and any(own.iterdir()):
            raise NcclInspectError(f"{self._output}: not empty", f"{_HINT}, or add --overwrite")
        for path in inputs:
            if own and path.resolve().is_relative_to(own.resolve()):
                raise NcclInspectError(f"{self._output}: it holds an input, {path}", _HINT)

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open the file for an input."""
        if self.folder is None and self._output == "-":
            return nullcontext(atomic_files.standard_output())
        if self.folder is None:
            return atomic_files.open_compressed(self._output, "-o")
        path = self.folder / self._rename(self.inner_name(name))
        stem, number = path.name, 1
        while path in self._used:
            number += 1
            path = path.with_name(f"{number}-{stem}")
        self._used.add(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NcclInspectError(f"{path.parent}: {error.strerror}", "check the folder given with -o") from None
        return atomic_files.open_replacement(str(path), "-o")

    def written_files(self) -> Iterator[tuple[str, Path]]:
        """Yield the files in the folder, by their names in it."""
        for path in sorted(self._used):
            assert self.folder is not None
            yield path.relative_to(self.folder).as_posix(), path

    def pack(self) -> None:
        """Write the archive, if there is to be one: without owners and times.

        Raises:
            NcclInspectError: it cannot be written.
        """
        if not self.is_archive:
            return
        top = next(Path(self._output).name.removesuffix(end) for end in _ARCHIVES if self._output.endswith(end))
        with (
            atomic_files.open_replacement(self._output, "-o") as file,
            tarfile.open(fileobj=file, mode="w:gz") as archive,
        ):
            for name, path in self.written_files():
                info = tarfile.TarInfo(f"{top}/{name}")
                info.size = path.stat().st_size
                with path.open("rb") as data:
                    archive.addfile(info, data)

    def inner_name(self, name: str) -> str:
        """Return the name of a file within the folder or archive that was given, or its last part; unpacked."""
        root = next((root for root in self._roots if Path(name).is_relative_to(root)), None)
        inside = Path(name).relative_to(root).as_posix() if root else Path(name).name
        archive, colon, member = name.partition(":")
        if colon and not Path(name).exists() and Path(archive).is_file():
            inside = member
        parts = [part for part in PurePosixPath(inside).parts if part not in ("..", "/", ".")] or ["log"]
        last = parts[-1]
        parts[-1] = next((last[: -len(suffix)] for suffix in _PACKED if last.endswith(suffix)), last)
        return "/".join(parts)
