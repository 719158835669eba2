"""Run commands in this process."""

from __future__ import annotations

import inspect
import io
import os
import sys
from contextlib import chdir
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest import mock

from click.testing import CliRunner, Result

from nccl_inspect import cli

_APART: dict[str, Any] = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
"""Until 8.1 click mixes the two streams unless it is told not to; later releases do not know the word."""
_LOOKS = ("COLUMNS", "NO_COLOR", "FORCE_COLOR")


def invoke(*args: str, data: bytes | None = None) -> Result:
    """Return the result of a command that must work: an error is raised as it is."""
    return CliRunner(**_APART).invoke(cli.cli, args, input=data, standalone_mode=False, catch_exceptions=False)


def execute(
    *args: str, data: bytes = b"", cwd: Path | None = None, env: dict[str, str] | None = None
) -> CompletedProcess[bytes]:
    """Return the status and the streams of a command, with errors as people see them, as if all were pipes."""
    given, out, err = (io.TextIOWrapper(io.BytesIO(text), "utf-8") for text in (data, b"", b""))
    environment = {name: value for name, value in os.environ.items() if name not in _LOOKS} | (env or {})
    with (
        chdir(cwd or Path.cwd()),
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch.multiple(sys, argv=["nccl-inspect", *args], stdin=given, stdout=out, stderr=err),
    ):
        try:
            status = cli.execute()
        except SystemExit as end:  # click, after completions
            status = int(end.code or 0)
        out.flush()
        err.flush()
    shown = (stream.buffer.getvalue() for stream in (out, err))
    return CompletedProcess(args, status, *shown)
