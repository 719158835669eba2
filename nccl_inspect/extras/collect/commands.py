"""A command of a table, and how it is run: limited in time, without a terminal, its end known."""

from __future__ import annotations

import os
import shlex
import subprocess
from contextlib import suppress
from dataclasses import replace
from tempfile import TemporaryFile
from typing import BinaryIO

from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.secrets import masked

NOT_INSTALLED = "not installed"
"""What is wrong with a command that this machine does not have."""
_MAX_WORDS = 2000
_AFTER_KILL = 1
"""Seconds to wait for a process that was killed: one that hangs in a driver does not end."""


@frozen
class Command(Frozen):
    """Holds what is run, and where its output goes."""

    file: str
    """Within the folder; ``{pod}`` and the like are filled in, as in ``argv``."""
    argv: tuple[str, ...]
    is_log: bool = False
    """Whether the output is kept as it is, of any size; all else is searched for secrets."""
    keeps_failed: bool = False
    """Whether the output is of use even where the status is not 0."""

    def filled(self, **values: str) -> Command:
        """The command for one pod, node, …; what comes from elsewhere cannot leave the folder.

        Args:
            values: by the names in braces.
        """
        parts = {name: value.replace("/", "_").lstrip(".") or "_" for name, value in values.items()}
        argv = tuple(word.format(**values) for word in self.argv)
        return replace(self, file=self.file.format(**parts), argv=argv)

    def __str__(self) -> str:
        return shlex.join(self.argv)


def run(argv: tuple[str, ...], output: BinaryIO, seconds: float) -> str | None:
    """Run a command; what is wrong, None where it ended with status 0.

    Args:
        argv: the command.
        output: takes what it prints.
        seconds: after which it is killed.
    """
    environment = {**os.environ, "LC_ALL": "C"}
    with TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment, start_new_session=True
            )
        except FileNotFoundError:
            return NOT_INSTALLED
        except OSError as error:
            return error.strerror or str(error)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            _kill(process)
            return f"no end after {seconds:g} s"
        except BaseException:
            _kill(process)
            raise
        return None if status == 0 else _words(errors, status)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_AFTER_KILL)


def _words(errors: BinaryIO, status: int) -> str:
    """The status, and the last line that the command says of it."""
    errors.seek(max(errors.seek(0, os.SEEK_END) - _MAX_WORDS, 0))
    lines = errors.read().decode("utf-8", "replace").strip().splitlines() or [""]
    words = masked(" ".join(lines[-1].split()))
    return f"status {status}: {words}" if words else f"status {status}"
