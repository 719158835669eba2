"""Runs commands in this process: ``stdout`` and ``stderr`` of the result are apart with every release of click."""

from __future__ import annotations

import inspect
from typing import Any

from click.testing import CliRunner, Result

from nccl_inspect.cli import cli

_APART: dict[str, Any] = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
"""Until 8.1 click mixes the two unless it is told not to; later releases do not know the word."""


def invoke(*args: str, data: bytes | None = None) -> Result:
    """A command that must work: an error is raised as it is."""
    return CliRunner(**_APART).invoke(cli, args, input=data, standalone_mode=False, catch_exceptions=False)
