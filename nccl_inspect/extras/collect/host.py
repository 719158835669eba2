"""The state of this machine: GPUs, NICs, limits, kernel. What is not installed is left out."""

from __future__ import annotations

import glob
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path

from nccl_inspect.extras.collect import ras
from nccl_inspect.extras.collect.collection import Collection, Wanted, load_commands

ARGUMENT = ""
HELP = "this machine, and the job that runs on it (RAS)"
KERNEL_LOG = "dmesg"
COMMANDS = load_commands("host")
_RAS_SECONDS = 10.0


def collect(collection: Collection, _wanted: Wanted) -> None:
    """Gather the files."""
    ask_ras(collection)
    gather_machine(collection)
    collection.write_index(folder())


def gather_machine(collection: Collection) -> None:
    """Gather what commands say of this machine."""
    commands = []
    for command in COMMANDS.values():  # with the files that their patterns match; those that match none are left out
        matches = [sorted(glob.glob(word)) if "*" in word else [word] for word in command.argv]  # noqa: PTH207 - absolute
        if all(matches):
            argv = tuple(word for words in matches for word in words)
            commands.append(replace(command, file=f"{folder()}/{command.file}", argv=argv))
    collection.run_all(commands)


def ask_ras(collection: Collection, seconds: float = _RAS_SECONDS) -> None:
    """Ask RAS, in both forms."""
    where = ras.address()

    def keep(form: str, path: Path) -> None:
        path.write_bytes(ras.answer(where, form, seconds))

    for form in ras.FORMS:
        file = f"{folder()}/ras.{'json' if form == 'json' else 'answer'}"
        collection.keep(file, f"ask RAS at {where} for {form}", partial(keep, form))


def folder() -> str:
    """Return the folder of this machine, named as NCCL names it: without its domain."""
    return f"hosts/{socket.gethostname().partition('.')[0] or 'host'}"
