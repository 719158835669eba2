"""Options and steps that several commands share."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import click

from nccl_inspect import reading
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style

_Command = TypeVar("_Command", bound=Callable[..., Any])
_LONG = 20_000_000
"""Bytes above which a run is long enough to show its progress."""


def inputs(command: _Command) -> _Command:
    """The argument LOG…."""
    return click.argument("logs", nargs=-1, metavar="[LOG]...", type=click.Path(path_type=str))(command)


def judging(command: _Command) -> _Command:
    """The options that say how a job is judged."""
    for option in (
        click.option(
            "--platform", metavar="NAME", help="Machine type, such as p5.48xlarge, where the log does not name it."
        ),
        click.option(
            "--topology",
            "topologies",
            multiple=True,
            metavar="FILE",
            help="Output of 'nvidia-smi topo -m': tells what joins the GPUs. May be repeated.",
        ),
        click.option(
            "--progress/--no-progress",
            default=None,
            help="Show progress on stderr. Default: long inputs on a terminal.",
        ),
    ):
        command = option(command)
    return command


def output(command: _Command) -> _Command:
    """The options that say where a report goes and how it looks."""
    for option in (
        click.option("-o", "--output", metavar="FILE", default="-", help="Write to FILE instead of standard output."),
        click.option(
            "--no-color", is_flag=True, help="No colours, also on a terminal (as does the variable NO_COLOR)."
        ),
    ):
        command = option(command)
    return command


def given(logs: tuple[str, ...]) -> list[str]:
    """The inputs, or standard input when something is piped in.

    Raises:
        NcclInspectError: nothing is given and standard input is a terminal.
    """
    if logs:
        return list(logs)
    if sys.stdin is None or sys.stdin.isatty():
        raise NcclInspectError("no input", "name a log file, or pipe one in: kubectl logs POD | nccl-inspect summarize")
    return ["-"]


def read(logs: tuple[str, ...], options: reading.Options, progress: bool | None) -> Job:
    """Read and judge the inputs, with a progress bar on stderr where that helps."""
    judge = reading.Judge(options)  # what is wrong with the options is said before a long log is read
    names = given(logs)
    with _bar(names, progress) as bar:
        fold = reading.fold(names, bar.update if bar else None)
    return judge(fold)


def _bar(names: list[str], progress: bool | None) -> AbstractContextManager[Any]:
    sizes = [Path(name).stat().st_size for name in names if name != "-" and Path(name).is_file()]
    if progress is None:
        progress = sys.stderr.isatty() and ("-" in names or sum(sizes) > _LONG)
    if not progress:
        return nullcontext()
    total = sum(sizes) if len(sizes) == len(names) else None
    return click.progressbar(length=total, label="reading", file=sys.stderr)


def style(no_color: bool, target: str, verbose: bool = False) -> Style:
    """The style of a report: colours on a terminal only, the width of the terminal, 100 columns elsewhere."""
    terminal = target == "-" and sys.stdout.isatty()
    color = terminal and not no_color and "NO_COLOR" not in os.environ
    return Style(width=shutil.get_terminal_size((100, 24)).columns, color=color, verbose=verbose)


def write(text: str, target: str) -> None:
    """Write a report to a file or to standard output.

    Raises:
        NcclInspectError: the file cannot be written.
    """
    write_lines(text.splitlines(), target)


def write_lines(lines: Iterable[str], target: str) -> None:
    """Write lines as they come, to a file or to standard output.

    Raises:
        NcclInspectError: the file cannot be written.
    """
    if target == "-":
        try:
            sys.stdout.writelines(f"{line}\n" for line in lines)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader has enough (| head): leave stdout pointing nowhere, so that the interpreter does not complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        return
    try:
        with Path(target).open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise NcclInspectError(f"{target}: {error.strerror}", "check the folder given with -o") from None


__all__ = ["given", "inputs", "judging", "output", "read", "style", "write", "write_lines"]
