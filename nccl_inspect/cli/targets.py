"""Checks of the name of a command's output: it replaces no input, and it says nothing wrong of what will be in it."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

import click

from nccl_inspect.cli import shared
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.ingest.sources import files
from nccl_inspect.util import atomic_files

_OUTPUT = "output"
"""The parameter that names the output, in all commands."""
_LOGS = "logs"
"""The argument that means standard input if it is empty."""
_UNKNOWN = frozenset((".7z", ".bz2", ".lz4", ".xz", ".zip", ".zst"))
"""Suffixes of other compressions than gzip: what is written to such a file would be no such thing."""


def require_known_compression(ctx: click.Context) -> None:
    """Make sure, before anything is read, that the name after ``-o`` does not ask for a compression that is not there.

    Raises:
        NcclInspectError: it does.
    """
    target = PurePath(str(ctx.params.get(_OUTPUT, "-")))
    if target.suffix.lower() in _UNKNOWN:
        raise NcclInspectError(
            f"{target}: cannot write {target.suffix}, only .gz",
            f"use -o {target.stem}.gz, or -o {target.stem} and compress that file",
        )


def require_no_input(ctx: click.Context) -> None:
    """Make sure, before anything is read, that ``-o`` does not replace an input.

    Raises:
        NcclInspectError: an input would be lost.
    """
    target = ctx.params.get(_OUTPUT, "-")
    if target in atomic_files.STDOUT:
        return
    try:
        status = Path(target).stat()
    except OSError:  # nothing can be lost
        return
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        return
    for name in _inputs(ctx):
        if lost := _lost(name, target, status):
            what = "is one of the inputs" if Path(target).is_file() else f"holds one of the inputs, {lost}"
            raise NcclInspectError(f"{target}: {what}, which would be lost", "choose another name for -o")


def unwritten(ctx: click.Context) -> str:
    """The file of ``-o``, which is not written yet when a command begins; empty for standard output."""
    target = str(ctx.params.get(_OUTPUT, "-"))
    return "" if target in atomic_files.STDOUT else target


def _inputs(ctx: click.Context) -> Iterator[str]:
    """The files that parameters name, except the output."""
    for parameter in ctx.command.params:
        if parameter.type is not shared.FILE or parameter.name in (None, _OUTPUT):
            continue
        value: Any = ctx.params.get(parameter.name or "", ctx.meta.get(f"{shared.__name__}.{parameter.name}"))
        names = value if isinstance(value, list | tuple) else [value]
        yield from filter(None, names)
        if parameter.name == _LOGS and not names:
            yield "-"


def _lost(name: str, target: str, status: os.stat_result) -> str:
    """The input file that would be overwritten; empty if there is none."""
    if name == "-":
        with suppress(OSError, ValueError, AttributeError):  # no standard input, or something that only looks like it
            return "standard input" if os.path.samestat(os.fstat(sys.stdin.fileno()), status) else ""
        return ""
    if files.is_url(name):
        return ""
    for file in files.find(name):
        if isinstance(file.place, Path) and _covers(target, status, file.place):
            return file.name
    return ""


def _covers(target: str, status: os.stat_result, place: Path) -> bool:
    """Whether a file is the output, or below it."""
    if stat.S_ISDIR(status.st_mode):
        return place.resolve().is_relative_to(Path(target).resolve())
    with suppress(OSError):
        return os.path.samestat(place.stat(), status)
    return False
