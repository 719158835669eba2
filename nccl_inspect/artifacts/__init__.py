"""Evidence beside the log: files that say why a job stands where its log ends.

One module for each kind: ``KIND`` names it, ``recognises(name, head)`` tells by the first bytes whether a file is of
that kind, ``read(name, data)`` reads it. Files are recognised by what is in them, never by an option.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from nccl_inspect.errors import NoInputError
from nccl_inspect.ingest.sources import compression, files, log_detection
from nccl_inspect.ingest.sources.blocks import Progress
from nccl_inspect.ingest.sources.files import File, Input
from nccl_inspect.ingest.sources.streams import Pieces, StreamError
from nccl_inspect.model.inventory import Artifact, PassedOver

HEAD = 64 << 10  # bytes by which a file is recognised
_OF_NCCL = re.compile(rb":[0-9]+:[0-9]+ \[[0-9]+\] NCCL (?:INFO|WARN) ")  # a line of NCCL: what has one is a log
_VERSION = b"NCCL version "
MAX_BYTES = 256 << 20  # the largest file that is read
TOO_LARGE = f"larger than {MAX_BYTES >> 20} MB"
SHARED = 32 << 20  # bytes from which on starting processes pays
_MOST = 8  # processes: what they find is put together in one
_READERS = ("docker_inspect", "flight_recorder", "manifest", "ras", "slurm_job", "slurm_script", "topology_file")
"""The modules of kinds that are more than what a tool prints line by line."""


class NotOfKindError(Exception):
    """A file begins as one of a kind and is none: a log, mostly."""


class Kind(Protocol):
    """A module that reads one kind of file, or a :class:`~nccl_inspect.artifacts.machine.Tool`.

    One that reads what a tool prints has ``START``, too: how that begins, so that a file may hold several. ``FORM`` is
    ``yaml`` where it is that, ``MOST`` the bytes that are read. What its keys name is in ``names.toml``.
    """

    __name__: str
    KIND: str

    def recognises(self, name: str, head: bytes) -> bool:
        """Return whether a file is of this kind."""

    def read(self, name: str, data: bytes) -> Any:
        """Return what it holds; a ValueError says what is wrong with it, a NotOfKindError that it is a log."""


@cache
def kinds() -> tuple[Kind, ...]:
    """Return all kinds."""
    from nccl_inspect.artifacts.tools import load_tools  # most runs need none of the kinds

    return *(cast(Kind, import_module(f"{__name__}.{name}")) for name in _READERS), *load_tools()


def kind_of(name: str, head: bytes) -> Kind | None:
    """Return the kind of a file, by its first bytes; None for a log and for all else."""
    if _OF_NCCL.search(head):
        return None  # most runs read logs only, and need none of the kinds
    return next((kind for kind in kinds() if kind.recognises(name, head)), None)


class Inventory(NamedTuple):
    """Holds what the inputs of a run hold."""

    logs: list[File]
    evidence: list[Artifact]
    passed_over: list[PassedOver]  # files in folders and archives that are neither


NOTHING = Inventory([], [], [])


def inventory(inputs: Input | Sequence[Input], progress: Progress | None = None) -> Inventory:
    """Tell the logs from the evidence beside them, and read the latter.

    Args:
        inputs: paths, folders, archives, globs, ``-``, bytes or file objects.
        progress: called after each file of evidence with the number of bytes read and their total.

    Raises:
        NoInputError: nothing is given, no log is, or something that cannot be one.
    """
    everything = beside(inputs, progress)
    if everything.evidence and not everything.logs:
        first = everything.evidence[0]
        raise NoInputError(f"{first.name}: {first.kind}, and no log of a job", "give the log of the job, too")
    return everything


def beside(inputs: Input | Sequence[Input], progress: Progress | None = None) -> Inventory:
    """Return the same of inputs that need hold no log.

    Raises:
        NoInputError: nothing is given, or something that cannot be a log.
    """
    contents = Inventory([], [], [])

    def pass_over(name: str, why: str) -> None:
        if why != log_detection.OWN:  # a report says the same whether an earlier one lies in the folder or not
            contents.passed_over.append(PassedOver(name, why))

    heads = ((file, head_of(file)) for file in files.find(inputs, is_artifact, pass_over))
    candidates = [
        (file, kind_of(file.name, head), log_detection.is_tar(head) or log_detection.is_zip(head), _VERSION in head)
        for file, head in heads
    ]
    read = iter(_read_files([(file, kind) for file, kind, _, _ in candidates if kind], progress))
    answers: list[File] = []  # those of RAS have a line of a log
    for file, kind, is_archive, has_version in candidates:
        held = next(read) if kind else None
        if held is not None:
            contents.evidence.extend(held)
            answers += [file] if has_version and any(one.reader == "ras" for one in held) else []
            continue
        if is_archive:
            from nccl_inspect.artifacts import packed  # most logs are not archives

            evidence, without = packed.read(file, pass_over)
            contents.evidence.extend(evidence)
            file = replace(file, without=without)
        contents.logs.append(file)
    contents.logs.extend(answers if not contents.logs else ())
    contents.passed_over.sort(key=lambda entry: log_detection.natural(entry.name))
    return contents


def _read_files(files_of_kind: Sequence[tuple[File, Kind]], progress: Progress | None) -> list[list[Artifact] | None]:
    """Return what files hold, in their order; None for one that is a log. Very many are read by several processes."""
    total = sum(file.size or 0 for file, _ in files_of_kind)
    number = 1
    if total >= SHARED:
        # The evidence of thousands of ranks: a dump of 2,000 calls takes some 20 ms.
        from nccl_inspect.util import processes  # most logs have few files beside them

        if processes.can_fork():  # an opened file and a kind cannot be pickled
            number = min(processes.processors(), _MOST)

    def count(size: int) -> None:
        if progress:
            progress(size * number, total)  # all processes are taken to be as quick

    if number == 1:
        return read_share(files_of_kind, count)
    ends = [len(files_of_kind) * place // number for place in range(number + 1)]
    shares = [files_of_kind[start:end] for start, end in pairwise(ends)]
    with processes.Helpers() as helpers:
        started = [helpers.start(read_share, share) for share in shares[1:]]
        found = read_share(shares[0], count)
        for share, helper in zip(shares[1:], started, strict=True):
            found += helper.result() or read_share(share)
    return found


def read_share(
    files_of_kind: Iterable[tuple[File, Kind]], count: Callable[[int], None] = lambda _: None
) -> list[list[Artifact] | None]:
    """Return what files hold, in their order; None for one that is a log.

    Args:
        count: called with the size of each file that was read.
    """
    found: list[list[Artifact] | None] = []
    for file, kind in files_of_kind:
        is_too_large = (file.size or 0) > MAX_BYTES
        try:
            pieces = iter(()) if is_too_large else file.open()
            found.append(contents(file.name, kind, pieces, TOO_LARGE if is_too_large else ""))
        except NotOfKindError:
            found.append(None)
        count(file.size or 0)
    return found


def is_artifact(name: str, head: bytes) -> bool:
    """Return whether a file is of use whatever its name: a log of the kernel is one that is read as such."""
    from nccl_inspect.artifacts import kernel  # most inputs are not folders

    text = log_detection.unpack_head(head) or b""
    return kind_of(name, text) is not None or kernel.is_log(text)


def head_of(file: File) -> bytes:
    """Return the first bytes of a file on disk, unpacked: streams are logs."""
    if not isinstance(file.place, Path):
        return b""
    try:
        with file.place.open("rb", buffering=0) as stream:
            return log_detection.unpack_head(stream.read(HEAD)) or b""
    except OSError:  # reading it as a log says why
        return b""


def contents(name: str, kind: Kind, pieces: Pieces, problem: str = "") -> list[Artifact]:
    """Return what a file holds: one artifact, or one for each tool whose output is in it.

    Args:
        problem: why it is not read.

    Raises:
        NotOfKindError: it is a log.
    """
    data = bytearray()
    try:
        for piece in () if problem else compression.unpack_data(pieces):
            data += piece
            if len(data) > (most := getattr(kind, "MOST", MAX_BYTES)):
                problem = f"larger than {most >> 20} MB"
                break
    except StreamError as error:
        problem = error.what
    except OSError as error:
        problem = error.strerror or str(error)
    tools = {tool: start for tool in kinds() if (start := getattr(tool, "START", None))}
    parts = [(kind, bytes(data))]
    if kind in tools and not problem:
        from nccl_inspect.artifacts import machine

        sections = machine.sections(parts[0][1], list(tools.values()))
        parts = [([*tools][place], part) for place, part in sections] if len(sections) > 1 else parts
    artifacts = []
    for one, part in parts:
        value, why = None, problem
        try:
            value = None if problem else one.read(name, part)
        except RecursionError:
            why = "damaged: nested too deeply"
        except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:  # it may hold anything
            why = f"damaged: {error}"
        reader = one.__name__.rpartition(".")[2]
        artifacts.append(Artifact(name, one.KIND, value, problem=why or None, reader=reader))
    return artifacts
