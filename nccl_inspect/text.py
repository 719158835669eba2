"""The one decoding policy of the package: bytes that are not UTF-8 survive and are shown as ``\\xNN``.

NCCL logs are bytes: some versions print raw memory in an error message (2.23 prints a stale peer address).
"""

import re

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffe\uffff]")


def decode(data: bytes) -> str:
    """Bytes of a log as text that :func:`encode` turns back into the same bytes."""
    return data.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """The inverse of :func:`decode`."""
    return text.encode("utf-8", "surrogateescape")


def printable(text: str) -> str:
    """Text that is safe to show: undecodable bytes and control characters become ``\\xNN``.

    A log is not trusted, so an escape sequence in it must not reach the reader's terminal.
    """
    shown = encode(text).decode("utf-8", "backslashreplace")
    return _CONTROL.sub(
        lambda found: f"\\x{ord(found[0]):02x}" if ord(found[0]) < 256 else f"\\u{ord(found[0]):04x}", shown
    )


def cut(text: str, width: int) -> str:
    """The text, cut at its end, with a mark."""
    return text if len(text) <= width else text[: max(width - 1, 1)] + "…"


def printable_lines(text: str) -> str:
    """The same for text of several lines: its line ends stay."""
    return "\n".join(map(printable, text.split("\n")))
