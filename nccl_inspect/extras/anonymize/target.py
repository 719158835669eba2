"""Where anonymized files go: standard output, a file, a folder or an archive with the layout of the inputs."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.util import atomic_files

_PACKED = (".gz", ".bz2", ".xz", ".zst", ".zstd", ".lzma")
_ARCHIVES = (".tar.gz", ".tgz")
_HINT = "name another one with -o"


class Target:
    """Holds where files go.

    Args:
        output: as it was given.
        roots: the inputs that are folders.
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

        Raises:
            NcclInspectError: it would be.
        """
        own = self.folder if self.folder and not self.is_archive else None
        if own and not overwrite and own.is_dir() and any(own.iterdir()):
            raise NcclInspectError(f"{self._output}: not empty", f"{_HINT}, or add --overwrite")
        for path in inputs:
            if own and path.resolve().is_relative_to(own.resolve()):
                raise NcclInspectError(f"{self._output}: it holds an input, {path}", _HINT)

    def of(self, name: str) -> AbstractContextManager[BinaryIO]:
        """The file for an input.

        Raises:
            NcclInspectError: it cannot be made.
        """
        if self.folder is None and self._output == "-":
            return nullcontext(atomic_files.standard_output())
        if self.folder is None:
            return atomic_files.compressing(self._output, "-o")
        path = self.folder / self._rename(self.inside(name))
        stem, number = path.name, 1
        while path in self._used:
            number += 1
            path = path.with_name(f"{number}-{stem}")
        self._used.add(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NcclInspectError(f"{path.parent}: {error.strerror}", "check the folder given with -o") from None
        return atomic_files.replacing(str(path), "-o")

    def written(self) -> Iterator[tuple[str, Path]]:
        """The files in the folder, by their names in it."""
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
        with atomic_files.replacing(self._output, "-o") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, path in self.written():
                info = tarfile.TarInfo(f"{top}/{name}")
                info.size = path.stat().st_size
                with path.open("rb") as data:
                    archive.addfile(info, data)

    def inside(self, name: str) -> str:
        """The name of a file within the folder or archive that was given, or its last part; unpacked."""
        root = next((root for root in self._roots if Path(name).is_relative_to(root)), None)
        inside = Path(name).relative_to(root).as_posix() if root else Path(name).name
        archive, colon, member = name.partition(":")
        if colon and not Path(name).exists() and Path(archive).is_file():
            inside = member
        parts = [part for part in PurePosixPath(inside).parts if part not in ("..", "/", ".")] or ["log"]
        last = parts[-1]
        parts[-1] = next((last[: -len(suffix)] for suffix in _PACKED if last.endswith(suffix)), last)
        return "/".join(parts)
