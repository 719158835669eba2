"""``nccl-inspect anonymize``: logs and the evidence beside them that can be passed on."""

from __future__ import annotations

import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import click

from nccl_inspect.artifacts.errors import NotOfKindError
from nccl_inspect.cli import print_stderr, shared
from nccl_inspect.errors import NoInputError
from nccl_inspect.extras.anonymize import Anonymizer
from nccl_inspect.extras.anonymize.evidence import Evidence
from nccl_inspect.extras.anonymize.files import Document, Gathered, Target, gather
from nccl_inspect.extras.anonymize.names import Names, load_table
from nccl_inspect.extras.anonymize.text import Leaks
from nccl_inspect.extras.live.tail import STDIN
from nccl_inspect.ingest.sources import blocks as sources
from nccl_inspect.ingest.sources.blocks import Progress, Source
from nccl_inspect.ingest.sources.files import File
from nccl_inspect.report.words import shorten_list
from nccl_inspect.util.progress import Bar
from nccl_inspect.util.wording import count

_MAX_TOLD = 20
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
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=shared.FILE,
    default="-",
    help="Write to FILE, FILE.gz compressed; several files go to a folder of this name, or to an archive: FILE.tar.gz.",
)
@click.option("--overwrite", is_flag=True, help="Write into a non-empty folder. Inputs are never overwritten.")
@click.option(
    "--all-text",
    is_flag=True,
    help="Also write text files of unrecognized kinds: review these most carefully.",
)
@click.option(
    "--map",
    "map_file",
    metavar="FILE",
    type=shared.FILE,
    help="Save the table of replacements to FILE; keep it private. If FILE exists, reuse and extend it.",
)
@shared.progress_option
def command(
    logs: tuple[str, ...], output: str, overwrite: bool, all_text: bool, map_file: str | None, progress: bool | None
) -> None:
    """Replace host, pod and user names, addresses, paths, GPU and NIC ids, URLs and tokens, consistently across files.

    Inputs are logs and the evidence beside them that summarize reads: flight recorder dumps, RAS answers, manifests,
    Slurm files, the state of machines. From the result, nccl-inspect reports the same paths, findings and verdict,
    except for lines-damaged: torn lines are written whole. Inputs are read twice, so piped input is kept in a
    temporary file meanwhile. Review the result before you share it: the output of your own program may contain names
    that no tool can recognize.
    """
    names = shared.inputs_or_stdin(logs)
    with Bar(progress) as bar:
        write(names, output, map_file, bar.update if bar.wanted else None, overwrite=overwrite, all_text=all_text)


def write(
    names: list[str],
    output: str,
    map_file: str | None = None,
    progress: Progress | None = None,
    *,
    overwrite: bool = False,
    all_text: bool = False,
) -> None:
    """Write copies of logs and evidence without names.

    Args:
        names: of logs and folders, or ``-``.
        output: the file or folder to write to, or ``-``.
        map_file: the file for the table of replacements.
        progress: takes the bytes read, of both passes.
        overwrite: also write into a non-empty folder.
        all_text: also write text files of unrecognized kinds.

    Raises:
        NcclInspectError: nothing can be read or written.
    """

    def update_half(size: int, total: int | None) -> None:  # there are two passes
        assert progress is not None
        progress(size, None if total is None else 2 * total)

    with ExitStack() as stack:
        inputs = [_keep_input(name, stack) for name in names]
        gathered = gather(inputs, all_text)
        job = _Job(
            gathered, Names(load_table(map_file) if map_file else None), None if progress is None else update_half
        )
        readable = job.learn([STDIN if name == "-" else name for name in names])
        folders = [name for name in names if Path(name).is_dir()]
        target = Target(output, folders, readable > 1 or bool(folders), job.anonymizer.file_name, stack)
        read = (*gathered.logs, *(document.log for document in gathered.documents))
        target.guard(
            (file.place for file in read if isinstance(file, File) and isinstance(file.place, Path)), overwrite
        )
        for name, reason in islice(sorted(gathered.passed_over.items()), _MAX_TOLD):
            print_stderr(f"passed over: {name} ({reason})")
        if len(gathered.passed_over) > _MAX_TOLD:
            print_stderr(f"passed over: {count(len(gathered.passed_over) - _MAX_TOLD, 'more file')}")
        job.write(target)
        if target.folder is not None:
            _report_leaks(job.anonymizer.names, target)
        target.pack()
    if map_file:
        job.anonymizer.names.save(map_file)


def _keep_input(name: str, stack: ExitStack) -> str | BinaryIO:
    """Return an input that can be read twice: piped input is kept in a temporary file."""
    path = Path(name)
    if name != "-" and not (path.exists() and not stat.S_ISREG(path.stat().st_mode) and not path.is_dir()):
        return name
    copy: BinaryIO = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    with nullcontext(sys.stdin.buffer) if name == "-" else path.open("rb") as stream:
        shutil.copyfileobj(stream, copy)
    return copy


class _Job:
    """Learns names from all inputs, then writes them.

    Args:
        names: the table of replacements, which may hold some already.
        progress: takes the progress, if wanted.
    """

    def __init__(self, gathered: Gathered, names: Names, progress: Progress | None) -> None:
        self.anonymizer = Anonymizer(names)
        self._evidence = Evidence(self.anonymizer)
        self._gathered = gathered
        self._progress = progress
        self._members: set[str] = set()
        """Evidence in archives, which may also look like logs."""

    def learn(self, names: list[str]) -> int:
        """Learn names; return the number of readable inputs.

        Raises:
            NoInputError: no input is readable, or there is neither an NCCL line nor evidence.
        """
        documents = sum(map(self._learn_document, self._gathered.evidence()))
        anonymizer = self.anonymizer
        readable = documents
        problems: list[NoInputError] = []
        for source in self._sources():
            try:
                anonymizer.learn_from(source)
                readable += 1
            except NoInputError as error:
                problems.append(error)
        for problem in problems[1:] if not (anonymizer.lines_read or documents) else problems:
            print_stderr(str(problem))
        if problems and not anonymizer.lines_read and not documents:
            raise problems[0]
        if not anonymizer.nccl_lines and not documents:
            what = f"{shorten_list(names, 3)}: no NCCL line among {count(anonymizer.lines_read, 'line')}"
            raise NoInputError(what, "names are learned from NCCL lines only, so nothing was written")
        anonymizer.settle()
        return readable

    def _learn_document(self, document: Document) -> bool:
        """Learn the names of an evidence file; return whether it can be written."""
        try:
            self._evidence.learn(document.kind, document.name, document.open())
        except NotOfKindError:
            if document.log is not None:
                self._gathered.logs.append(document.log)
        except RecursionError:
            self._gathered.passed_over[document.name] = f"{document.kind.KIND}, damaged: nested too deeply"
        except (ValueError, OSError) as error:
            self._gathered.passed_over[document.name] = f"{document.kind.KIND}, damaged: {error}"
        else:
            self._members.add(document.name)
            return True
        return False

    def _sources(self) -> Iterator[Source]:
        for stream in self._gathered.logs:
            if not isinstance(stream, File):
                stream.seek(0)
        logs = sources.find(self._gathered.logs, self._progress) if self._gathered.logs else iter(())
        return (source for source in logs if source.name not in self._members)

    def write(self, target: Target) -> None:
        """Write all readable inputs."""
        for source in self._sources():
            self._write(source.name, self.anonymizer.blocks(source), target)
        for document in self._gathered.evidence():
            if document.name in self._members:
                self._write(document.name, self._evidence.blocks(document.kind, document.open()), target)

    @staticmethod
    def _write(name: str, blocks: Iterator[bytes], target: Target) -> None:
        """Write a file; unreadable ones were reported before."""
        try:
            first = next(blocks, b"")
        except NoInputError:
            return
        try:
            with target.open(name) as file:
                file.write(first)
                with suppress(NoInputError):  # the part before the damage is written
                    file.writelines(blocks)
                file.flush()
        except BrokenPipeError:
            shared.exit_quietly()


def _report_leaks(names: Names, target: Target) -> None:
    """Report names that are left in the written files."""
    leaks, reported = Leaks(names), 0
    for name, path in target.written_files():
        with path.open("rb") as file:
            left = leaks.find_leaks(iter(lambda: file.readlines(1 << 20), []))
        if left:
            reported += 1
            if reported <= _MAX_TOLD:
                print_stderr(f"{name}: still names {shorten_list(left, 5)}; review it before you share it")
    if reported > _MAX_TOLD:
        print_stderr(f"{count(reported - _MAX_TOLD, 'more file')} with names left")
