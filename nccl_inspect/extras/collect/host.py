"""The state of this machine (GPUs, NICs, limits, kernel), and what NCCL's RAS answers.

What is not installed is left out. RAS listens in a process of the job; its protocol is that of ``ncclras``
(src/ras/client_support.cc).
"""

from __future__ import annotations

import glob
import os
import socket
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from nccl_inspect.extras.collect.collection import Collection, Wanted, load_commands

FORMS = ("text", "json")  # each answer says what the other leaves out; JSON is known since 2.28
_MAX_BYTES = 64 << 20


class FormatError(OSError):
    """This release does not answer in that form."""


def address() -> str:
    """Return where it listens."""
    return os.environ.get("NCCL_RAS_ADDR") or "localhost:28028"


def answer(where: str, form: str, seconds: float) -> bytes:
    """Return what RAS at ``HOST:PORT`` answers in one of :data:`FORMS`, within a number of seconds."""
    host, _, port = where.rpartition(":")
    if not port.isdecimal():
        raise OSError(f"NCCL_RAS_ADDR={where}: not HOST:PORT")
    end = time.monotonic() + seconds
    with socket.create_connection((host.strip("[]") or "localhost", int(port)), timeout=seconds) as connection:
        received = bytearray()

        def receive() -> bool:
            """Take in what comes, until the end: a peer that sends a byte now and then does not prolong it."""
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError("RAS did not answer in time")
            connection.settimeout(left)
            received.extend(piece := connection.recv(1 << 16))
            return bool(piece)

        def ask(command: str) -> bytes:
            connection.sendall(f"{command}\n".encode())
            while b"\n" not in received:
                if not receive():
                    raise OSError("RAS closed the connection")
            line, _, received[:] = received.partition(b"\n")
            return bytes(line)

        ask("CLIENT PROTOCOL 2")
        if form != FORMS[0] and not ask(f"SET FORMAT {form}").startswith(b"OK"):
            raise FormatError(f"RAS of this release of NCCL has no answer as {form}")
        connection.sendall(b"VERBOSE STATUS\n")
        while receive():  # RAS closes the connection behind its answer
            if len(received) > _MAX_BYTES:
                raise OSError(f"the answer is larger than {_MAX_BYTES >> 20} MB")
        if not received:
            raise OSError("RAS closed the connection without an answer")
        return bytes(received)


# This machine

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
    where = address()

    def keep(form: str, path: Path) -> None:
        path.write_bytes(answer(where, form, seconds))

    for form in FORMS:
        file = f"{folder()}/ras.{'json' if form == 'json' else 'answer'}"
        collection.keep(file, f"ask RAS at {where} for {form}", partial(keep, form))


def folder() -> str:
    """Return the folder of this machine, named as NCCL names it: without its domain."""
    return f"hosts/{socket.gethostname().partition('.')[0] or 'host'}"
