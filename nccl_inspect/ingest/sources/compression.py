"""Unpacks gzip, bzip2, xz, lzma and zstd, recognized by the first bytes and never by the name.

Unpacked data comes in pieces of at most about :data:`~nccl_inspect.ingest.sources.streams.BLOCK` bytes, however much a
few packed bytes may stand for: a few kilobytes can hold terabytes, which nobody wants to wait for.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.ingest.sources.streams import BLOCK, Pieces, StreamError, peek
from nccl_inspect.util.patterns import compile_later

VARIABLE = "NCCLINSPECT_MAX_UNPACKED"
"""The environment variable that sets the limit, such as ``200G``; the option ``--max-unpacked`` is the same."""
_DEFAULT = 64 << 30
_FREE = 2 << 30
_RATIO = 2000  # logs pack to a twentieth, a flood of one line to a thousandth
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = compile_later(r"([0-9]{1,15})([KMGT]?)(?:i?B)?", re.IGNORECASE)


def given_limit() -> str | None:
    """Return the limit that somebody set; None for the usual one."""
    return os.environ.get(VARIABLE) or None


def parse_size(text: str) -> int:
    """Return bytes as people write them: ``500M``, ``2G``; an NcclInspectError says that it is not a size."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise NcclInspectError(f"invalid size '{text}' for --max-unpacked", "write 500M, 200G or 2T")
    return int(match[1]) * _UNITS[match[2].upper()]


class Allowance:
    """Holds what one input may unpack to, all members of an archive together.

    Args:
        free: unpacked bytes that are read however few packed ones they came from.
        ratio: beyond them, unpacked bytes for one packed one.
    """

    def __init__(self, free: int = _FREE, ratio: int = _RATIO) -> None:
        wanted = given_limit()
        self._most = parse_size(wanted) if wanted else _DEFAULT
        self._free, self._ratio = free, None if wanted else ratio
        self._packed = self._given = 0

    def take(self, packed: int) -> None:
        """Count packed bytes that were read."""
        self._packed += packed

    def give(self, unpacked: int) -> None:
        """Count the bytes that came of them; a StreamError says that they are too many."""
        self._given += unpacked
        if self._given > self._most:
            raise self._error(f"it decompresses to more than {_words(self._most)}")
        if self._ratio and self._given > max(self._free, self._ratio * self._packed):
            raise self._error(f"it decompresses to more than {self._ratio:,} times its size, unlike any log")

    def _error(self, what: str) -> StreamError:
        more = max(2 * self._most, _DEFAULT)
        return StreamError(f"{what}; reading stopped there", f"use --max-unpacked {_words(more)} to read on")


def _words(number: int) -> str:
    unit = next((unit for unit in "TGMK" if number >= _UNITS[unit] and number % _UNITS[unit] == 0), "")
    return f"{number // _UNITS[unit]}{unit}"


_MAGIC = 6  # the longest of the beginnings below
_MEMORY = 128 << 20  # what a decoder may take for its window: enough for ``xz -9`` and ``zstd --long=27``
_ZSTD_STEP = 1024
"""Packed bytes given to zstd at a time: it takes no limit for what it gives back (at most 128 kB for 4 bytes)."""
_ZSTD_COMMAND = "zstd -dc FILE | nccl-inspect summarize"


class _Zstd:
    """zstd with the interface of the standard library's decoders."""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self.unconsumed_tail = b""
        self.eof = False
        self.unused_data = b""

    def decompress(self, data: bytes, _max_length: int, /) -> bytes:
        out: bytes = self._decoder.decompress(data[:_ZSTD_STEP])
        self.eof = self._decoder.eof
        self.unconsumed_tail = b"" if self.eof else data[_ZSTD_STEP:]
        self.unused_data = self._decoder.unused_data + data[_ZSTD_STEP:] if self.eof else b""
        return out


_KINDS = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"]\0\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    **{bytes([first]) + b"\x2a\x4d\x18": "zstd" for first in range(0x50, 0x60)},  # frames that are skipped: pzstd
}
_OTHERS = {
    b"\x04\x22\x4d\x18": ("lz4", "lz4 -dc FILE"),
    b"\x1f\x9d": ("compress", "uncompress -c FILE"),
    b"7z\xbc\xaf\x27\x1c": ("7-Zip", "7z x -so FILE"),
    b"Rar!\x1a\x07": ("RAR", "unrar p -inul FILE"),
}
_BEGINNINGS = (*_KINDS, *_OTHERS)


def is_packed(head: bytes) -> bool:
    """Return whether data that begins so is packed, also in a way that is not unpacked here."""
    return head.startswith(_BEGINNINGS)


def unpack_data(data: Pieces, allowance: Allowance | None = None) -> Pieces:
    """Return the data, unpacked once if it is packed; a StreamError says why no more than what was given is read."""
    head, data = peek(
        data, lambda head: len(head) >= _MAGIC or (head != b"" and not any(one.startswith(head) for one in _BEGINNINGS))
    )
    if not is_packed(head):
        return data
    for beginning, (name, command) in _OTHERS.items():
        if head.startswith(beginning):
            raise StreamError(f"{name} is not unpacked here", f"unpack it: {command} | nccl-inspect summarize")
    kind = next(kind for beginning, kind in _KINDS.items() if head.startswith(beginning))
    return _unpack_pieces(data, *_find_decoder(kind), allowance or Allowance())


def _find_decoder(kind: str) -> tuple[Callable[[], Any], type[Exception]]:
    """Return what makes decoders of a kind, and the error that these raise; most logs need none.

    A StreamError says that Python has none.
    """
    if kind == "gzip":
        return (lambda: zlib.decompressobj(wbits=31)), zlib.error
    if kind == "bzip2":
        import bz2

        return bz2.BZ2Decompressor, OSError
    if kind == "xz":
        import lzma

        return (lambda: lzma.LZMADecompressor(memlimit=_MEMORY)), lzma.LZMAError
    with suppress(ImportError):
        import zstandard

        factory = zstandard.ZstdDecompressor(max_window_size=_MEMORY)
        return (lambda: _Zstd(factory.decompressobj(write_size=1 << 15))), zstandard.ZstdError
    try:
        zstd = import_module("compression.zstd")  # of Python itself, since 3.14
    except ImportError:
        raise StreamError(
            "it is packed with zstd, and Python's package for that is not installed",
            f"pip install zstandard, or: {_ZSTD_COMMAND}",
        ) from None
    options = {zstd.DecompressionParameter.window_log_max: _MEMORY.bit_length() - 1}
    return (lambda: zstd.ZstdDecompressor(options=options)), zstd.ZstdError


def _unpack_pieces(
    data: Pieces, make: Callable[[], Any], error: type[Exception], allowance: Allowance
) -> Iterator[bytes]:
    """Yield what packed data stands for, part after part: packed files may be put together by ``cat``."""
    decoder = None
    try:
        for piece in data:
            allowance.take(len(piece))
            packed, may_give = piece, True
            while may_give:
                if decoder is None:
                    packed = packed.lstrip(b"\0")  # parts may be padded
                    if not packed:
                        break
                    decoder = make()
                out = decoder.decompress(packed, BLOCK)
                if out:
                    yield out
                    allowance.give(len(out))
                if decoder.eof:
                    packed, decoder = decoder.unused_data, None
                else:
                    packed = getattr(decoder, "unconsumed_tail", b"")
                    may_give = bool(packed) or len(out) >= BLOCK
    except error as problem:
        words = " ".join(str(problem).split()) or type(problem).__name__
        raise StreamError(f"the compressed data is damaged ({words})", "copy the file again") from None
    if decoder is not None:
        raise StreamError("the compressed data is damaged (it breaks off)", "copy the file again")
