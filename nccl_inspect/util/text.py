"""The one decoding policy of the package: bytes that are not UTF-8 survive and are shown as ``\\xNN``.

NCCL logs are bytes: some versions print raw memory in an error message (2.23 prints a stale peer address).
"""

import codecs
import re
from pathlib import Path

from nccl_inspect.util.patterns import compile_later

DIGITS = b"0123456789"  # lines without them show what they look like
PLAIN = "nccl_inspect.plain"  # how streams that cannot hold all characters write ours: by what ASCII has for them
_PLAIN = {"…": "...", "→": "->", "–": "-", "—": "-", "›": ">", "µ": "u"}
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffe\uffff]")
_CONTROL_IN_LINES = compile_later(r"(?!\n)" + _CONTROL.pattern)


def decode(data: bytes) -> str:
    """Return bytes of a log as text that :func:`encode` turns back into the same bytes."""
    return data.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """Return the inverse of :func:`decode`."""
    return text.encode("utf-8", "surrogateescape")


def spell(data: bytes) -> str:
    """Return a character for each byte: to look for a text there takes a fifth of the time that it takes in bytes."""
    return data.decode("latin-1")


def read_parts(module: str, file: str) -> dict[str, str]:
    """Return the parts of a file beside a module, by the names at their beginnings."""
    text = Path(module).with_name(file).read_text(encoding="utf-8")
    _, *parts = re.split(r"^# ([a-z-]+):.*\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def escape_controls(text: str) -> str:
    """Return text that is safe to show: undecodable bytes and control characters become ``\\xNN``.

    A log is not trusted, so an escape sequence in it must not reach the reader's terminal.
    """
    return _CONTROL.sub(_escape_match, encode(text).decode("utf-8", "backslashreplace"))


def escape_controls_in_lines(text: str) -> str:
    """Return the same for text of several lines: its line ends stay."""
    return _CONTROL_IN_LINES.sub(_escape_match, encode(text).decode("utf-8", "backslashreplace"))


def _escape_match(match: re.Match[str]) -> str:
    return f"\\x{ord(match[0]):02x}" if ord(match[0]) < 256 else f"\\u{ord(match[0]):04x}"


def cut(text: str, width: int) -> str:
    """Return the text, cut at its end, with a mark."""
    return text if len(text) <= width else text[: max(width - 1, 1)] + "…"


def _write_in_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return what stands for the first character that a stream cannot hold: names in a log may have any."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    char = error.object[error.start]
    return _PLAIN.get(char) or char.encode("ascii", "backslashreplace").decode("ascii"), error.start + 1


codecs.register_error(PLAIN, _write_in_ascii)


def has_line_of(block: bytes, size: int) -> bool:
    """Return whether a line has at least that many bytes."""
    place = 0
    while len(block) - place >= size:
        end = block.rfind(b"\n", place, place + size)
        if end < 0:
            return True
        place = end + 1
    return False
