"""Asks NCCL's RAS, which listens in a process of the job: the protocol of ``ncclras``, src/ras/client_support.cc."""

from __future__ import annotations

import os
import socket
import time

VARIABLE = "NCCL_RAS_ADDR"
USUAL = "localhost:28028"
FORMS = ("text", "json")
"""Each answer says what the other leaves out; JSON is known since 2.28."""
_MAX_BYTES = 64 << 20


class FormatError(OSError):
    """This release does not answer in that form."""


def address() -> str:
    """Return where it listens."""
    return os.environ.get(VARIABLE) or USUAL


def answer(where: str, form: str, seconds: float) -> bytes:
    """Return what RAS answers.

    Args:
        where: ``HOST:PORT``.
        form: one of :data:`FORMS`.
        seconds: that the whole may take.

    Raises:
        FormatError: it does not know the format.
        OSError: nothing listens there, or it does not answer in time.
    """
    host, _, port = where.rpartition(":")
    if not port.isdecimal():
        raise OSError(f"{VARIABLE}={where}: not HOST:PORT")
    end = time.monotonic() + seconds
    with socket.create_connection((host.strip("[]") or "localhost", int(port)), timeout=seconds) as connection:
        replies = _Replies(connection, end)
        replies.ask("CLIENT PROTOCOL 2")
        if form != FORMS[0] and not replies.ask(f"SET FORMAT {form}").startswith(b"OK"):
            raise FormatError(f"RAS of this release of NCCL has no answer as {form}")
        connection.sendall(b"VERBOSE STATUS\n")
        return replies.read_rest()


class _Replies:
    """Reads from a connection until a time: a peer that sends a byte now and then does not prolong it."""

    def __init__(self, connection: socket.socket, end: float) -> None:
        self._connection = connection
        self._end = end
        self._pending = b""

    def ask(self, command: str) -> bytes:
        """Return the line with which a command is answered."""
        self._connection.sendall(f"{command}\n".encode())
        while b"\n" not in self._pending:
            piece = self._piece()
            if not piece:
                raise OSError("RAS closed the connection")
            self._pending += piece
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def read_rest(self) -> bytes:
        """Return all until RAS closes the connection, as it does behind its answer."""
        reply = bytearray(self._pending)
        while piece := self._piece():
            reply += piece
            if len(reply) > _MAX_BYTES:
                raise OSError(f"the answer is larger than {_MAX_BYTES >> 20} MB")
        if not reply:
            raise OSError("RAS closed the connection without an answer")
        return bytes(reply)

    def _piece(self) -> bytes:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("RAS did not answer in time")
        self._connection.settimeout(left)
        return self._connection.recv(1 << 16)
