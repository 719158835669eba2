"""``nccl-inspect anonymize``: a log that can be passed on."""

from __future__ import annotations

import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import click

from nccl_inspect import outputs
from nccl_inspect.anonymous import Anonymizer
from nccl_inspect.anonymous.names import Names, load
from nccl_inspect.cli import say, shared, writing
from nccl_inspect.errors import NcclInspectError, NoInputError
from nccl_inspect.following import STDIN
from nccl_inspect.ingest import sources
from nccl_inspect.ingest.sources import Progress, Source
from nccl_inspect.progress import Bar
from nccl_inspect.report.words import shortened
from nccl_inspect.rules.facts import count

_PACKED = (".gz", ".bz2", ".xz", ".zst", ".zstd", ".lzma")
_EXAMPLES = """
\b
Examples:
  nccl-inspect anonymize job.log > shareable.log
  kubectl logs job/llama | nccl-inspect anonymize -o shareable.log
  nccl-inspect anonymize logs/ -o shareable/ --map names.json

Exit status: 130 Ctrl-C; a FILE that is not complete is not written.
"""


@click.command(epilog=_EXAMPLES, short_help="The same log with names, addresses and paths replaced.")
@shared.inputs
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=shared.FILE,
    default="-",
    help="Write to FILE; of several logs, to files in this folder.",
)
@click.option(
    "--map",
    "map_file",
    metavar="FILE",
    type=shared.FILE,
    help="Write there what was replaced by what, for your eyes only; where FILE exists, go on with it.",
)
@click.option(
    "--progress/--no-progress",
    default=None,
    help="Show progress on stderr. Default: long inputs on a terminal.",
)
def command(logs: tuple[str, ...], output: str, map_file: str | None, progress: bool | None) -> None:
    """Replace host, pod and user names, addresses, paths, GPU and NIC identifiers, URLs and tokens, always alike.

    What remains tells nccl-inspect the same as before: paths, findings and verdict stay, but for lines-damaged: torn
    lines are written whole. The log is read twice, so what is piped in is kept in a temporary file meanwhile. Look over
    the result before you pass it on: what your own program prints may name things in words that nobody can know.
    """
    names = shared.given(logs)
    with Bar(progress) as bar:
        write(names, output, map_file, bar.update if bar.wanted else None)


def write(names: list[str], output: str, map_file: str | None = None, told: Progress | None = None) -> None:
    """Write logs again without names.

    Args:
        names: of logs and folders, or ``-``.
        output: the file or folder to write to, or ``-``.
        map_file: where to write what was replaced by what.
        told: how many bytes were read, of both readings.

    Raises:
        NcclInspectError: nothing can be read or written.
    """
    with ExitStack() as stack:
        inputs = [_kept(name, stack) for name in names]
        twice = _twice(told) if told else None
        anonymizer = Anonymizer(Names(load(map_file) if map_file else None))
        readable = _learn(anonymizer, inputs, twice, [STDIN if name == "-" else name for name in names])
        target = _Target(output, names, anonymizer, several=readable > 1 or any(Path(name).is_dir() for name in names))
        for source in _found(inputs, twice):
            _write(anonymizer, source, target)
    if map_file:
        anonymizer.names.save(map_file)


def _twice(told: Progress) -> Progress:
    """Progress of two readings."""
    return lambda size, total: told(size, None if total is None else 2 * total)


def _kept(name: str, stack: ExitStack) -> str | BinaryIO:
    """An input that can be read twice: what comes from a pipe is kept in a temporary file."""
    path = Path(name)
    if name != "-" and not (path.exists() and not stat.S_ISREG(path.stat().st_mode) and not path.is_dir()):
        return name
    copy: BinaryIO = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    with nullcontext(sys.stdin.buffer) if name == "-" else path.open("rb") as stream:
        shutil.copyfileobj(stream, copy)
    return copy


def _found(inputs: list[str | BinaryIO], told: Progress | None) -> Iterator[Source]:
    for one in inputs:
        if not isinstance(one, str):
            one.seek(0)
    return sources.find(inputs, told)


def _learn(anonymizer: Anonymizer, inputs: list[str | BinaryIO], told: Progress | None, names: list[str]) -> int:
    """Learn names from all inputs; how many could be read.

    Raises:
        NoInputError: none could, or no line is NCCL's.
    """
    readable = 0
    problems: list[NoInputError] = []
    for source in _found(inputs, told):
        try:
            anonymizer.learn_from(source)
            readable += 1
        except NoInputError as error:
            problems.append(error)
    for problem in problems[1:] if not anonymizer.lines_read else problems:
        say(str(problem))
    if problems and not anonymizer.lines_read:
        raise problems[0]
    if not anonymizer.nccl_lines:
        what = f"{shortened(names, 3)}: no NCCL line among {count(anonymizer.lines_read, 'line')}"
        raise NoInputError(what, "its names are known from the lines of NCCL only, so nothing was written")
    anonymizer.settle()
    return readable


class _Target:
    """Where the logs go.

    Args:
        output: as it was given.
        names: the inputs.
        anonymizer: file names hold names, too.
        several: whether there is a file for each log.

    Raises:
        NcclInspectError: several logs and no folder.
    """

    def __init__(self, output: str, names: list[str], anonymizer: Anonymizer, several: bool) -> None:
        self._folder = Path(output) if several or output.endswith("/") or Path(output).is_dir() else None
        if self._folder is not None and output == "-":
            raise NcclInspectError("several logs", "name a folder for them: -o FOLDER")
        if self._folder is not None and self._folder.exists() and not self._folder.is_dir():
            raise NcclInspectError(f"{output}: several logs, and this is no folder", "name another one with -o")
        self._output = output
        self._roots = [Path(name) for name in names if Path(name).is_dir()]
        self._anonymizer = anonymizer
        self._used: set[Path] = set()

    def of(self, source: Source) -> AbstractContextManager[BinaryIO]:
        """The file for a log."""
        if self._folder is None:
            return nullcontext(sys.stdout.buffer) if self._output == "-" else outputs.replacing(self._output, "-o")
        path = self._folder / self._anonymizer.file_name(self._inside(source.name))
        stem, number = path.name, 1
        while path in self._used:
            number += 1
            path = path.with_name(f"{number}-{stem}")
        self._used.add(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NcclInspectError(f"{path.parent}: {error.strerror}", "check the folder given with -o") from None
        return outputs.replacing(str(path), "-o")

    def _inside(self, name: str) -> str:
        """The name of a log within the folder or archive that was given, or its last part; unpacked."""
        root = next((root for root in self._roots if Path(name).is_relative_to(root)), None)
        inside = Path(name).relative_to(root).as_posix() if root else Path(name).name
        archive, colon, member = name.partition(":")
        if colon and not Path(name).exists() and Path(archive).is_file():
            inside = member
        parts = [part for part in PurePosixPath(inside).parts if part not in ("..", "/", ".")] or ["log"]
        last = parts[-1]
        parts[-1] = next((last[: -len(suffix)] for suffix in _PACKED if last.endswith(suffix)), last)
        return "/".join(parts)


def _write(anonymizer: Anonymizer, source: Source, target: _Target) -> None:
    """Write a log; one that cannot be read was told before."""
    blocks = anonymizer.blocks(source)
    try:
        first = next(blocks, b"")
    except NoInputError:
        return
    try:
        with target.of(source) as file:
            file.write(first)
            with suppress(NoInputError):  # what comes before the damage is written
                file.writelines(blocks)
            file.flush()
    except BrokenPipeError:
        writing.end_in_silence()
