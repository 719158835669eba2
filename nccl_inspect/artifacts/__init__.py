"""Evidence beside the log: files that say why a job stands where its log ends.

One module for each kind: ``KIND`` names it, ``recognises(name, head)`` tells by the first bytes whether a file is of
that kind, ``read(name, data)`` reads it. Files are recognised by what is in them, never by an option.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any, Protocol, cast

from nccl_inspect.artifacts.errors import NotOfKindError
from nccl_inspect.discovery import modules
from nccl_inspect.errors import NoInputError
from nccl_inspect.ingest import files
from nccl_inspect.ingest.files import File, Input
from nccl_inspect.ingest.streams import StreamError
from nccl_inspect.model.inventory import Artifact

HEAD = 64 << 10
"""Bytes by which a file is recognised."""
_OF_NCCL = re.compile(rb":[0-9]+:[0-9]+ \[[0-9]+\] NCCL (?:INFO|WARN) ")
"""A line of NCCL: what has one is a log."""
MAX_BYTES = 256 << 20
"""The largest file that is read."""
_PARTS = ("causes", "containers", "errors", "kernel", "located", "machine", "owner", "plain_pickle", "standstill")


class Kind(Protocol):
    """A module that reads one kind of file.

    One that reads what a tool prints has ``START``, too: how that begins, so that a file may hold several. One may have
    ``NAMES``, what its keys name (:mod:`nccl_inspect.anonymous.fields`), and ``FORM``: ``yaml`` where it is that.
    """

    __name__: str
    KIND: str

    def recognises(self, name: str, head: bytes) -> bool:
        """Whether a file is of this kind."""

    def read(self, name: str, data: bytes) -> Any:
        """What it holds; a ValueError says what is wrong with it, a NotOfKindError that it is a log."""


def of(artifacts: Iterable[Artifact], *readers: str) -> list[Any]:
    """What the files of some kinds hold.

    Args:
        artifacts: of a job.
        readers: the modules here that read the kinds, by name: who asks need not load them.
    """
    return [entry.value for name in readers for entry in artifacts if entry.reader == name and entry.value is not None]


@cache
def kinds() -> tuple[Kind, ...]:
    """All kinds."""
    names = modules(__file__, *_PARTS)
    return tuple(cast(Kind, import_module(f"nccl_inspect.artifacts.{name}")) for name in names)


def kind_of(name: str, head: bytes) -> Kind | None:
    """The kind of a file, by its first bytes; None for a log and for all else."""
    if _OF_NCCL.search(head):
        return None  # most runs read logs only, and need none of the kinds
    return next((kind for kind in kinds() if kind.recognises(name, head)), None)


def parted(inputs: Input | Sequence[Input]) -> tuple[list[File], list[Artifact]]:
    """Tell the logs from the evidence beside them, and read the latter.

    Args:
        inputs: paths, folders, globs, ``-``, bytes or file objects.

    Raises:
        NoInputError: nothing is given, no log is, or something that cannot be one.
    """
    logs: list[File] = []
    beside: list[Artifact] = []
    for file in files.find(inputs, beside=is_artifact):
        kind = kind_of(file.name, _head(file))
        try:
            if kind:
                beside.extend(_read(file, kind))
                continue
        except NotOfKindError:
            pass
        logs.append(file)
    if beside and not logs:
        first = beside[0]
        raise NoInputError(f"{first.name}: {first.kind}, and no log of a job", "give the log of the job, too")
    return logs, beside


def is_artifact(name: str, head: bytes) -> bool:
    """Whether a file in a folder is of use whatever its name: a log of the kernel is one that is read as such."""
    from nccl_inspect.artifacts import kernel  # most inputs are no folders

    return kind_of(name, head) is not None or kernel.is_log(head)


def _head(file: File) -> bytes:
    """The first bytes of a file on disk: streams are logs."""
    if not isinstance(file.place, Path):
        return b""
    try:
        with file.place.open("rb", buffering=0) as stream:
            return stream.read(HEAD)
    except OSError:  # reading it as a log says why
        return b""


def _read(file: File, kind: Kind) -> list[Artifact]:
    """What a file holds: one artifact, or one for each tool whose output is in it."""
    if (file.size or 0) > MAX_BYTES:
        return [_artifact(file.name, kind, problem=f"larger than {MAX_BYTES >> 20} MB")]
    try:
        data = b"".join(file.open())
    except (OSError, StreamError) as error:
        return [_artifact(file.name, kind, problem=str(error))]
    from nccl_inspect.artifacts import machine

    starts = {tool: start for tool in kinds() if (start := getattr(tool, "START", None))}
    parts = machine.sections(data, list(starts.values())) if kind in starts else []
    if len(parts) < 2:
        return [_of_kind(file.name, kind, data)]
    tools = list(starts)
    return [_of_kind(file.name, tools[place], part) for place, part in parts]


def _of_kind(name: str, kind: Kind, data: bytes) -> Artifact:
    try:
        return _artifact(name, kind, kind.read(name, data))
    except RecursionError:
        return _artifact(name, kind, problem="damaged: nested too deeply")
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:  # it may hold anything
        return _artifact(name, kind, problem=f"damaged: {error}")


def _artifact(name: str, kind: Kind, value: Any = None, problem: str | None = None) -> Artifact:
    return Artifact(name, kind.KIND, value, problem=problem, reader=kind.__name__.rpartition(".")[2])


def problems(artifacts: Iterable[Artifact]) -> Iterable[str]:
    """What could not be read, in words."""
    return (f"{entry.name}: {entry.kind} not used: {entry.problem}" for entry in artifacts if entry.problem)


class _Named(Protocol):
    name: str


def nearest(
    beside: Iterable[Artifact], mine: Sequence[_Named], every: Mapping[PurePath, AbstractSet[str]]
) -> list[Artifact]:
    """The evidence of one of several jobs: what lies in a folder that holds logs of this job and of no other.

    Args:
        beside: all evidence.
        mine: the sources of the job.
        every: the :func:`folders` of all jobs.
    """
    names = {source.name for source in mine}
    found = []
    for entry in beside:
        folder = next((above for above in PurePath(entry.name).parents if above in every), None)
        if folder and every[folder] <= names:
            found.append(entry)
    return found


def folders(sources: Iterable[_Named]) -> dict[PurePath, set[str]]:
    """The sources in each folder, and below it."""
    found: dict[PurePath, set[str]] = {}
    for source in sources:
        for folder in PurePath(source.name).parents:
            found.setdefault(folder, set()).add(source.name)
    return found
