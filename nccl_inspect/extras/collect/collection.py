"""A folder that fills with the output of commands; what failed is listed in it and stops nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryFile

from nccl_inspect.extras.collect import commands, manifests
from nccl_inspect.extras.collect.commands import Command
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.secrets import masked

INDEX = "collection.txt"
TITLE = "nccl-inspect collection"
"""First line of the index, which marks it as not being a log."""
_AT_ONCE = 8
_MANIFEST = ".json"


@frozen
class Outcome(Frozen):
    """Holds how one command ended."""

    file: str
    what: str
    """The command, or what was copied or asked."""
    problem: str | None = None


class Collection:
    """Runs commands and keeps what they print.

    Args:
        folder: takes the files; None to run nothing and only show.
        show: takes each command before it runs.
        seconds: that each command has; those that fetch a log have ten times as long.
    """

    def __init__(self, folder: Path | None, show: Callable[[str], None], seconds: float) -> None:
        self._folder = folder
        self._show = show
        self._seconds = seconds
        self._lock = threading.Lock()
        self.outcomes: list[Outcome] = []

    @property
    def is_dry(self) -> bool:
        """Whether nothing is run."""
        return self._folder is None

    @property
    def kept(self) -> list[Outcome]:
        """Return what is in the folder, by its file."""
        return sorted((outcome for outcome in self.outcomes if not outcome.problem), key=lambda entry: entry.file)

    @property
    def failed(self) -> list[Outcome]:
        """Return what could not be had, without what is not installed here."""
        return sorted(
            (entry for entry in self.outcomes if entry.problem not in (None, commands.NOT_INSTALLED)),
            key=lambda entry: entry.file,
        )

    def run(self, command: Command) -> bytes:
        """Run one command; its output, empty where there is none or it is a log."""
        self._show(str(command))
        if self._folder is None:
            return b""
        try:
            problem, data = self._log(command) if command.is_log else self._text(command)
        except OSError as error:
            problem, data = error.strerror or str(error), b""
        self._add(Outcome(command.file, str(command), problem))
        return data

    def run_all(self, some: Iterable[Command]) -> None:
        """Run commands, several at once."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(self.run, some):
                pass

    def keep(self, file: str, what: str, make: Callable[[], bytes]) -> None:
        """Keep what is not the output of a command.

        Args:
            file: within the folder.
            what: it is, for people.
            make: gives the data; an OSError says why there is none.
        """
        self._show(what)
        if self._folder is None:
            return
        problem = None
        try:
            self._place(file).write_bytes(make())
        except OSError as error:
            problem = error.strerror or str(error)
        self._add(Outcome(file, what, problem))

    def copy(self, file: str, source: Path) -> None:
        """Keep a file, of any size."""
        import shutil  # few copy

        self._show(f"cp {source} {file}")
        if self._folder is None:
            return
        problem = None
        try:
            shutil.copyfile(source, self._place(file))
        except OSError as error:
            problem = error.strerror or str(error)
        self._add(Outcome(file, str(source), problem))

    def forget_tries(self, file: str) -> None:
        """Forget what failed before a file was had after all."""
        self.outcomes = [entry for entry in self.outcomes if entry.file != file or not entry.problem]

    def write_index(self, folder: str = "") -> None:
        """Write what was run and what failed."""
        if self._folder is None:
            return
        absent = sorted(entry.what for entry in self.outcomes if entry.problem == commands.NOT_INSTALLED)
        sections = {
            "kept": [f"{entry.file}\n      {entry.what}" for entry in self.kept],
            "failed": [f"{entry.what}\n      {entry.problem}" for entry in self.failed],
            commands.NOT_INSTALLED: absent,
        }
        lines = [TITLE]
        for title, rows in sections.items():
            lines += ["", title, *(f"  {row}" for row in rows or ["(nothing)"])]
        text = "".join(f"{line}\n" for line in lines)
        self._place(str(Path(folder, INDEX))).write_text(text, encoding="utf-8", errors="replace")

    def _text(self, command: Command) -> tuple[str | None, bytes]:
        """Run what prints a document, which is written without its secrets; gives the whole of it."""
        with TemporaryFile() as file:
            problem = commands.run(command.argv, file, self._seconds)
            file.seek(0)
            data = file.read()
        if problem and not (command.keeps_failed and data):
            return problem, b""
        try:
            shown = manifests.masked(data) if command.file.endswith(_MANIFEST) else _without_secrets(data)
        except ValueError as error:
            return f"not kept: {error}", b""
        self._place(command.file).write_bytes(shown)
        return problem, data

    def _log(self, command: Command) -> tuple[str | None, bytes]:
        place = self._place(command.file)
        with place.open("wb") as file:
            problem = commands.run(command.argv, file, 10 * self._seconds)
        if problem and not place.stat().st_size:
            place.unlink()
        return problem, b""

    def _place(self, file: str) -> Path:
        assert self._folder is not None
        place = self._folder / file
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def _add(self, outcome: Outcome) -> None:
        with self._lock:
            self.outcomes.append(outcome)


def _without_secrets(data: bytes) -> bytes:
    text = data.decode("utf-8", "surrogateescape")
    return "".join(map(masked, text.splitlines(keepends=True))).encode("utf-8", "surrogateescape")
