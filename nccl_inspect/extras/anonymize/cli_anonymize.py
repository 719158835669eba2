"""``nccl-inspect anonymize``: logs and the evidence beside them that can be passed on."""

from __future__ import annotations

import shutil
import stat
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TypeAlias

import click

from nccl_inspect import artifacts
from nccl_inspect.cli import print_stderr, shared
from nccl_inspect.errors import NcclInspectError, NoInputError
from nccl_inspect.extras.anonymize.anonymizer import Anonymizer
from nccl_inspect.extras.anonymize.evidence import Evidence
from nccl_inspect.extras.anonymize.text import Leaks, Names, load_table, rename_file
from nccl_inspect.ingest.sources import archives, compression, files, log_detection
from nccl_inspect.ingest.sources import blocks as sources
from nccl_inspect.ingest.sources.files import File
from nccl_inspect.ingest.sources.streams import Pieces, StreamError
from nccl_inspect.util import atomic_files
from nccl_inspect.util.progress import Bar
from nccl_inspect.util.text import escape_controls
from nccl_inspect.util.wording import count, some_names

_EXAMPLES = """
Examples:
  nccl-inspect anonymize job.log > shareable.log
  kubectl logs job/llama | nccl-inspect anonymize -o shareable.log
  nccl-inspect anonymize job-4711/ -o shareable/ --map names.json
  nccl-inspect anonymize job-4711.tar.gz -o shareable.tar.gz

Exit status: 130 Ctrl-C; an incomplete FILE is not written.
"""


@click.command(epilog=_EXAMPLES, short_help="Replace names, addresses and paths in logs and evidence.")
@shared.inputs
@shared.target_option(
    "Write to FILE, FILE.gz compressed; several files go to a folder of this name, or to an archive: FILE.tar.gz."
)
@click.option("--overwrite", is_flag=True, help="Write into a non-empty folder. Inputs are never overwritten.")
@click.option(
    "--map",
    "map_file",
    metavar="FILE",
    type=shared.FILE,
    help="Save the table of replacements to FILE; keep it private. If FILE exists, reuse and extend it.",
)
@shared.progress_option
def command(logs: tuple[str, ...], output: str, overwrite: bool, map_file: str | None, progress: bool | None) -> None:
    """Replace host, pod and user names, addresses, paths, GPU and NIC ids, URLs and tokens, consistently across files.

    Inputs are logs and the evidence beside them that summarize reads: flight recorder dumps, RAS answers, manifests,
    Slurm files, the state of machines. From the result, nccl-inspect reports the same paths, findings and verdict,
    except for lines-damaged: torn lines are written whole. Inputs are read twice, so piped input is kept in a
    temporary file meanwhile. Review the result before you share it: the output of your own program may contain names
    that no tool can recognize.
    """
    names = shared.inputs_or_stdin(logs)
    with Bar(progress) as bar:
        write(names, output, map_file, bar.update if bar.wanted else None, overwrite=overwrite)


def write(
    names: list[str],
    output: str,
    map_file: str | None = None,
    progress: sources.Progress | None = None,
    *,
    overwrite: bool = False,
) -> None:
    """Write copies of logs and evidence without names."""
    # There are two passes.
    update_half = progress and (lambda size, total: progress(size, total and 2 * total))
    with ExitStack() as stack:
        shown = {keep_input(name, stack): files.STDIN if name == "-" else name for name in names}
        table = Names(load_table(map_file) if map_file else None)
        job = _Job(shown, table, update_half)
        readable = job.learn()
        folders = [name for name in names if Path(name).is_dir()]
        rename = partial(rename_file, scrubber=job.anonymizer.scrubber)
        target = Target(output, folders, readable > 1 or bool(folders), rename, stack)
        target.guard(job.input_paths, overwrite)
        passed_over = [f"passed over: {name} ({reason})" for name, reason in sorted(job.passed_over.items())]
        shared.print_problems(passed_over, "more file", "passed over")
        leaks = Leaks(table)
        job.write(target, leaks)
        for name, path in target.files.items():
            with path.open("rb") as written:
                for lines in iter(partial(written.readlines, 1 << 20), []):
                    leaks.look(name, b"".join(lines))
        named = ((name, some_names(sorted(left), 5)) for name, left in leaks.left.items())
        still = [f"{name}: still names {left}; review it before you share it" for name, left in named]
        shared.print_problems(still, "more file", "with such names left")
        target.pack()
    if map_file:
        table.save(map_file)


def keep_input(name: str, stack: ExitStack) -> str:
    """Return the path of an input that can be read twice: piped input is kept in a temporary file."""
    path = Path(name)
    if name != "-" and not (path.exists() and not stat.S_ISREG(path.stat().st_mode) and not path.is_dir()):
        return name
    # On Linux a file without a name can be opened again: whatever ends the process, nothing of it is left on the disk.
    is_nameless = Path("/proc/self/fd").is_dir()
    open_file = tempfile.TemporaryFile if is_nameless else tempfile.NamedTemporaryFile
    kept: Any = stack.enter_context(open_file())
    with nullcontext(sys.stdin.buffer) if name == "-" else path.open("rb") as stream:
        shutil.copyfileobj(stream, kept)
    kept.flush()
    return f"/proc/self/fd/{kept.fileno()}" if is_nameless else kept.name


# The output

_PACKED = (".gz", ".bz2", ".xz", ".zst", ".zstd", ".lzma")
_ARCHIVES = (".tar.gz", ".tgz")
_HINT = "name another one with -o"


class Target:
    """The output: a single file, a folder or an archive."""

    def __init__(
        self, output: str, roots: Iterable[str], several: bool, rename: Callable[[str], str], stack: ExitStack
    ) -> None:
        self.output = output
        self._roots = [Path(root) for root in roots]
        self._rename = rename
        self._used: set[Path] = set()
        self._is_archive = output.endswith(_ARCHIVES)
        self.folder: Path | None = None  # None for a single file
        if self._is_archive:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nccl-anonymize-")))
        elif several or output.endswith("/") or Path(output).is_dir():
            self.folder = Path(output)
        if self.folder and output == "-":
            raise NcclInspectError("several files", "name a folder for them: -o FOLDER, or -o FILE.tar.gz")
        if self.folder and self.folder.exists() and not self.folder.is_dir():
            raise NcclInspectError(f"{output}: several files, and this is not a folder", _HINT)

    def guard(self, inputs: Iterable[Path], overwrite: bool) -> None:
        """Make sure that nothing is overwritten that is of use."""
        if self.folder is None or self._is_archive:
            return
        if not overwrite and self.folder.is_dir() and any(self.folder.iterdir()):
            raise NcclInspectError(f"{self.output}: not empty", f"{_HINT}, or add --overwrite")
        for path in inputs:
            if path.resolve().is_relative_to(self.folder.resolve()):
                raise NcclInspectError(f"{self.output}: it holds an input, {path}", _HINT)

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open the file for an input."""
        if self.folder is None and self.output == "-":
            return nullcontext(atomic_files.standard_output())
        if self.folder is None:
            return atomic_files.open_compressed(self.output, "-o")
        root = next((root for root in self._roots if Path(name).is_relative_to(root)), None)
        inside = Path(name).relative_to(root).as_posix() if root else Path(name).name
        archive, colon, member = name.partition(":")
        if colon and not Path(name).exists() and Path(archive).is_file():
            inside = member
        parts = [part for part in PurePosixPath(inside).parts if part not in ("..", "/", ".")] or ["log"]
        packing = next((suffix for suffix in _PACKED if parts[-1].endswith(suffix)), "")
        path = self.folder / self._rename("/".join(parts).removesuffix(packing))
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

    @property
    def files(self) -> dict[str, Path]:
        """Return the files in the folder, by their names in it."""
        return {path.relative_to(self.folder or "").as_posix(): path for path in sorted(self._used)}

    def pack(self) -> None:
        """Write the archive, if there is to be one: without owners and times."""
        if not self._is_archive:
            return
        top = next(Path(self.output).name.removesuffix(end) for end in _ARCHIVES if self.output.endswith(end))
        with (
            atomic_files.open_replacement(self.output, "-o") as file,
            tarfile.open(fileobj=file, mode="w:gz") as archive,
        ):
            for name, path in self.files.items():
                info = tarfile.TarInfo(f"{top}/{name}")
                info.size = path.stat().st_size
                with path.open("rb") as data:
                    archive.addfile(info, data)


# Both readings

Document: TypeAlias = tuple[str, artifacts.Kind, Callable[[], bytes]]
"""A file of evidence: its name (as that of a source), its kind, and what gives its contents, or an error that says why
it cannot."""


class _Job:
    """Tells logs, evidence and all else apart; learns names from all inputs, then writes them."""

    def __init__(self, shown: Mapping[str, str], names: Names, progress: sources.Progress | None) -> None:
        self.anonymizer = Anonymizer(names)
        self._names = list(shown.values())
        self._progress = progress
        self._evidence: dict[artifacts.Kind, Evidence] = {}
        self._logs: list[File] = []
        self._documents: list[tuple[File, artifacts.Kind]] = []
        self._archives: list[File] = []  # those among the logs whose members may be evidence
        self._good: set[str] = set()  # evidence that can be written; in archives it may also look like a log
        self.passed_over: dict[str, str] = {}  # files that are not handed on, with the reason
        for found in files.find([*shown], artifacts.is_artifact, self.passed_over.__setitem__):
            file = replace(found, name=shown.get(found.name, found.name))
            head = artifacts.head_of(file) if file.place else b""
            kind = artifacts.kind_of(head) if file.place else None
            if kind and (file.size or 0) > artifacts.MAX_BYTES:
                self.passed_over[file.name] = artifacts.TOO_LARGE
            elif kind:
                self._documents.append((file, kind))
            else:
                self._logs.append(file)
                is_packed = log_detection.is_tar(head) or log_detection.is_zip(head)
                if file.place and (is_packed or log_detection.is_named_as_archive(file.name)):
                    self._archives.append(file)

    @property
    def input_paths(self) -> list[Path]:
        read = (*self._logs, *(file for file, _ in self._documents))
        return [file.place for file in read if file.place]

    def _documents_everywhere(self) -> Iterator[Document]:
        """Yield all evidence; of an archive, open one before you ask for the next."""
        for file, kind in self._documents:
            yield file.name, kind, partial(_read_file, file)
        for archive in self._archives:
            with suppress(StreamError, OSError):  # reading its logs says why
                for member in artifacts.open_members(archive, archives.ALL):
                    with suppress(StreamError):  # of this member; reading it as a log says why
                        data, path = _unpack(member.open()), member.name
                        name = f"{archive.name}:{escape_controls(path.removeprefix('./'))}"
                        inner = artifacts.kind_of(data[: artifacts.HEAD])
                        if inner and len(data) <= artifacts.MAX_BYTES:
                            yield name, inner, partial(bytes, data)
                        elif inner or log_detection.is_left_out(path) or not log_detection.is_log(path, data):
                            self.passed_over.setdefault(name, artifacts.TOO_LARGE if inner else log_detection.UNKNOWN)

    def _sources(self) -> Iterator[sources.Source]:
        logs = sources.find(self._logs, self._progress) if self._logs else iter(())
        return (source for source in logs if source.name not in self._good)

    def learn(self) -> int:
        """Learn names; return the number of readable inputs."""
        anonymizer, documents = self.anonymizer, 0
        for name, kind, read in self._documents_everywhere():
            try:
                self._evidence.setdefault(kind, Evidence(kind, anonymizer)).learn(read())
                self._good.add(name)
                documents += 1
            except artifacts.NotOfKindError:
                self._logs += [file for file, _ in self._documents if file.name == name]
            except RecursionError:
                self.passed_over[name] = f"{kind.title}, damaged: nested too deeply"
            except (ValueError, OSError) as error:
                self.passed_over[name] = f"{kind.title}, damaged: {error}"
        readable = documents
        problems: list[NoInputError] = []
        for source in self._sources():
            try:
                anonymizer.learn_from(source)
                readable += 1
            except NoInputError as error:
                problems.append(error)
        is_nothing = not (anonymizer.lines_read or documents)
        for problem in problems[is_nothing:]:
            print_stderr(str(problem))
        if problems and is_nothing:
            raise problems[0]
        if not anonymizer.nccl_lines and not documents:
            what = f"{some_names(self._names, 3)}: no NCCL line among {count(anonymizer.lines_read, 'line')}"
            raise NoInputError(what, "names are learned from NCCL lines only, so nothing was written")
        anonymizer.settle()
        return readable

    def write(self, target: Target, leaks: Leaks) -> None:
        """Write all readable inputs, and look for leaks in a single one while it is written."""
        for source in self._sources():
            _write(source.name, self.anonymizer.blocks(source), target, leaks)
        for name, kind, read in self._documents_everywhere():
            if name in self._good:
                _write(name, self._evidence[kind].blocks(read()), target, leaks)


def _read_file(file: File) -> bytes:
    try:
        data = _unpack(file.open())
    except StreamError as error:
        raise ValueError(error.what) from None
    if len(data) > artifacts.MAX_BYTES:
        raise ValueError(artifacts.TOO_LARGE)
    return data


def _unpack(pieces: Pieces) -> bytes:
    data = bytearray()
    for piece in compression.unpack_data(pieces, compression.Allowance()):
        data += piece
        if len(data) > artifacts.MAX_BYTES:
            break
    return bytes(data)


def _write(name: str, blocks: Iterator[bytes], target: Target, leaks: Leaks) -> None:
    """Write a file; unreadable ones were reported before."""
    try:
        first = next(blocks, b"")
    except NoInputError:
        return
    try:
        with target.open(name) as file:
            with suppress(NoInputError):  # the part before the damage is written
                for block in chain([first], blocks):
                    file.write(block)
                    if target.folder is None:
                        leaks.look("<stdout>" if target.output == "-" else target.output, block)
            file.flush()
    except BrokenPipeError:
        shared.exit_quietly()
