"""The target and look of reports: standard output or a file, colors and width of the terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from typing import NoReturn

from nccl_inspect.cli import redirect_to_devnull
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.report import Style
from nccl_inspect.util import atomic_files
from nccl_inspect.util.records import Frozen, frozen

_FORCED = ("FORCE_COLOR", "CLICOLOR_FORCE")
"""Variables with which pipes get colors, too; NO_COLOR outweighs them."""
_CLOSED = 141
"""The exit status of a shell for a program that SIGPIPE ended."""


def style(no_color: bool, target: str, verbose: bool = False) -> Style:
    """The style of a report; only terminals get indented documents, and colors unless these are forced."""
    is_seen = target == "-" and sys.stdout.isatty()
    is_wanted = target == "-" and any(os.environ.get(name, "0") != "0" for name in _FORCED)
    is_able = is_seen and os.environ.get("TERM") != "dumb"
    color = (is_able or is_wanted) and not no_color and "NO_COLOR" not in os.environ
    return Style(width=columns(target, 100), color=color, verbose=verbose, indent=is_seen)


def columns(target: str, usual: int) -> int:
    """The width of the output: that of the terminal, else the usual one."""
    return shutil.get_terminal_size((usual, 24)).columns if target in atomic_files.STDOUT else usual


def exit_quietly() -> NoReturn:
    """Exit because the reader of standard output has closed it (| head), with the status that other programs have."""
    redirect_to_devnull(sys.stdout)
    sys.exit(_CLOSED)


@frozen
class Output(Frozen):
    """Holds where a report goes, and how it looks."""

    target: str
    style: Style

    @classmethod
    def of(cls, output: str, no_color: bool, verbose: bool) -> Output:
        """From the options."""
        return cls(output, style(no_color, output, verbose))

    def write(self, text: str) -> None:
        """Write a report to a file or to standard output.

        Raises:
            NcclInspectError: it cannot be written.
        """
        write_lines(text.removesuffix("\n").split("\n"), self.target)

    def write_lines(self, lines: Iterable[str]) -> None:
        """Write lines as they come.

        Raises:
            NcclInspectError: they cannot be written.
        """
        write_lines(lines, self.target)


def write_lines(lines: Iterable[str], target: str) -> None:
    """Write lines as they come, to a file or to standard output.

    Raises:
        NcclInspectError: they cannot be written.
    """
    if target not in atomic_files.STDOUT:
        atomic_files.lines(target, "-o", lines)
        return
    try:
        atomic_files.to_stdout(lines)
    except BrokenPipeError:
        exit_quietly()
    except OSError as error:
        redirect_to_devnull(sys.stdout)
        raise NcclInspectError(
            f"standard output: {error.strerror}", "free space there, or name a file with -o"
        ) from None
