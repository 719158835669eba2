"""A folder that fills with the output of commands; what failed is listed in it and stops nothing else.

A command is one of a table: it is limited in time, without a terminal, and its output is kept without its secrets.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

from nccl_inspect.util import secrets
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.text import decode, encode

# Commands

NOT_INSTALLED = "not installed"  # what is wrong with a command that this machine does not have
_MAX_WORDS = 2000
_AFTER_KILL = 1  # seconds to wait for a process that was killed: one that hangs in a driver does not end


class Command(Frozen):
    """Holds what is run, and where its output goes."""

    file: str  # within the folder; `{pod}` and the like are filled in, as in `argv`
    argv: tuple[str, ...]
    keeps_failed: bool = False  # whether the output is of use even where the status is not 0

    def fill(self, **values: str) -> Command:
        """Return the command for one pod, node, …; what comes from elsewhere cannot leave the folder."""
        parts = {name: value.replace("/", "_").lstrip(".") or "_" for name, value in values.items()}
        argv = tuple(word.format(**values) for word in self.argv)
        return replace(self, file=self.file.format(**parts), argv=argv)

    def __str__(self) -> str:
        return shlex.join(self.argv)


TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("commands.toml").read_text(encoding="utf-8"))


def load_commands(target: str) -> dict[str, Command]:
    """Return what is run for a target, by name."""
    named = TABLES[target].items()
    return {name: Command(file, tuple(shlex.split(text)), *how) for name, (file, text, *how) in named}


def run_command(argv: tuple[str, ...], output: BinaryIO, seconds: float) -> str | None:
    """Run a command, for so long at most; return what is wrong, None where it ended with status 0."""
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
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_AFTER_KILL)
            if isinstance(error, subprocess.TimeoutExpired):
                return f"no end after {seconds:g} s"
            raise
        if status == 0:
            return None
        errors.seek(max(errors.seek(0, os.SEEK_END) - _MAX_WORDS, 0))
        *_, last = errors.read().decode("utf-8", "replace").strip().splitlines() or [""]
        return f"status {status}: {secrets.mask_secrets(' '.join(last.split()))}".removesuffix(": ")


# Secrets

_REPEATED = "last-applied-configuration"  # holds the whole manifest once more, as text


def mask_manifest(data: bytes) -> bytes:
    """Return what ``kubectl get --output=json`` prints without its secrets; a ValueError says that it is not JSON."""
    return (json.dumps(_mask_value(json.loads(data)), indent=2) + "\n").encode()


def _mask_value(value: Any) -> Any:
    if isinstance(value, dict):
        if isinstance(value.get("name"), str) and isinstance(value.get("value"), str):
            value = {**value, "value": secrets.mask_value(value["name"], value["value"])}
        return {  # a reference to a secret names it and does not hold it
            key: secrets.mask_value(key, entry)
            if isinstance(entry, str) and not key.endswith("Name")
            else _mask_value(entry)
            for key, entry in value.items()
            if not key.endswith(_REPEATED)
        }
    if isinstance(value, list):
        shown = list(map(_mask_value, value))
        words = value[:-1] if all(isinstance(entry, str) for entry in value) else []
        for at, word in enumerate(words, 1):  # a secret may be the word after the option that names it
            if word.startswith("-") and "=" not in word and secrets.is_secret(word):
                shown[at] = secrets.MASK
        return shown
    return secrets.mask_secrets(value) if isinstance(value, str) else value


# The folder

INDEX = "collection.txt"
TITLE = "nccl-inspect collection"  # first line of the index, which marks it as not being a log
_AT_ONCE = 8
_MANIFEST = ".json"


class Outcome(Frozen):
    """Holds how one command ended."""

    file: str
    what: str
    problem: str | None = None


class Wanted(Frozen):
    """Holds what to collect: a selector or a number of a job, and for Kubernetes where it is, if not where one is."""

    argument: str = ""
    namespace: str = ""
    context: str = ""


class Collection:
    """Runs commands and keeps what they print; without a folder it runs nothing and only shows.

    Each command is shown before it runs, and ends in time; one that fetches a log has ten times as long.
    """

    def __init__(self, folder: Path | None, show: Callable[[str], None], seconds: float) -> None:
        self._folder, self._show, self._seconds = folder, show, seconds
        self.is_dry = folder is None
        self.outcomes: list[Outcome] = []

    @property
    def successes(self) -> list[Outcome]:
        """Return what is in the folder, by its file."""
        return sorted((outcome for outcome in self.outcomes if not outcome.problem), key=lambda entry: entry.file)

    @property
    def failures(self) -> list[Outcome]:
        """Return what could not be had, without what is not installed here."""
        failed = (entry for entry in self.outcomes if entry.problem not in (None, NOT_INSTALLED))
        return sorted(failed, key=lambda entry: entry.file)

    def run(self, command: Command) -> bytes:
        """Run one command; return its output, empty where there is none or it is a log."""
        output = self.keep(command.file, str(command), partial(self._fetch, command))
        return output if isinstance(output, bytes) else b""

    def run_all(self, some: Iterable[Command]) -> None:
        """Run commands, several at once."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self.run, some))

    def keep(self, file: str, what: str, write: Callable[[Path], object], shown: str = "") -> object:
        """Keep what ``write`` writes, and return what it returns; an OSError says why there is none."""
        self._show(shown or what)
        if self._folder is None:
            return None
        output, problem = None, None
        try:
            output = write(self._path(file))
        except OSError as error:
            problem = error.strerror or str(error)
        self.outcomes.append(Outcome(file, what, problem))
        return output

    def write_index(self, folder: str = "") -> None:
        """Write what was run and what failed."""
        if self._folder is None:
            return
        sections = {
            "kept": [f"{entry.file}\n      {entry.what}" for entry in self.successes],
            "failed": [f"{entry.what}\n      {entry.problem}" for entry in self.failures],
            NOT_INSTALLED: sorted(entry.what for entry in self.outcomes if entry.problem == NOT_INSTALLED),
        }
        rows = "".join(f"\n{title}\n  " + "\n  ".join(some or ["(nothing)"]) + "\n" for title, some in sections.items())
        self._path(str(Path(folder, INDEX))).write_text(f"{TITLE}\n{rows}", encoding="utf-8", errors="replace")

    def _fetch(self, command: Command, path: Path) -> bytes:
        """Run what prints a log, or a document, which is written without its secrets; return the whole of it."""
        data, is_log = b"", command.file.endswith(".log")
        with path.open("wb") if is_log else TemporaryFile() as file:
            problem = run_command(command.argv, file, self._seconds * (10 if is_log else 1))
            if not is_log:
                file.seek(0)
                data = file.read()
        if is_log and problem and not path.stat().st_size:
            path.unlink()
        elif not is_log and (data or not problem) and (command.keeps_failed or not problem):
            lines = decode(data).splitlines(keepends=True)
            try:
                is_manifest = command.file.endswith(_MANIFEST)
                masked = mask_manifest(data) if is_manifest else encode("".join(map(secrets.mask_secrets, lines)))
                path.write_bytes(masked)
            except ValueError as error:
                raise OSError(f"not kept: {error}") from None
        if problem:
            raise OSError(problem)
        return data

    def _path(self, file: str) -> Path:
        assert self._folder is not None
        path = self._folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        return path
