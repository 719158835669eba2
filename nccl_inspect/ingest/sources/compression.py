"""Unpacks gzip, bzip2, xz, lzma and zstd, recognized by the first bytes and never by the name.

Unpacked data comes in pieces of at most about :data:`~nccl_inspect.ingest.sources.streams.BLOCK` bytes, however much a
few packed bytes may stand for.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Protocol, cast

from nccl_inspect.ingest.sources.limits import Allowance
from nccl_inspect.ingest.sources.streams import BLOCK, Pieces, StreamError, peek

_MAGIC = 6
"""The longest of the beginnings below."""
_MEMORY = 128 << 20
"""What a decoder may take for its window: enough for ``xz -9`` and ``zstd --long=27``."""
_ZSTD_STEP = 1024
"""Packed bytes given to zstd at a time: it takes no limit for what it gives back (at most 128 kB for 4 bytes)."""
_ZSTD_COMMAND = "zstd -dc FILE | nccl-inspect summarize"


class _Decoder(Protocol):
    """Holds what the decoders of the standard library have in common."""

    @property
    def eof(self) -> bool:
        """Return whether the part has ended."""

    @property
    def unused_data(self) -> bytes:
        """Return what follows the part."""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Unpack; what is left over because of the limit is kept or is in ``unconsumed_tail``."""


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


def _gzip() -> tuple[Callable[[], _Decoder], type[Exception]]:
    return (lambda: zlib.decompressobj(wbits=31)), zlib.error


def _bz2() -> tuple[Callable[[], _Decoder], type[Exception]]:
    import bz2  # loaded where it is needed: most logs are not packed

    return bz2.BZ2Decompressor, OSError


def _xz() -> tuple[Callable[[], _Decoder], type[Exception]]:
    import lzma

    return (lambda: lzma.LZMADecompressor(memlimit=_MEMORY)), lzma.LZMAError


def _zstd() -> tuple[Callable[[], _Decoder], type[Exception]]:
    try:
        import zstandard
    except ImportError:
        return _zstd_of_python()
    factory = zstandard.ZstdDecompressor(max_window_size=_MEMORY)
    return (lambda: _Zstd(factory.decompressobj(write_size=1 << 15))), zstandard.ZstdError


def _zstd_of_python() -> tuple[Callable[[], _Decoder], type[Exception]]:
    """Return what Python itself has since 3.14.

    Raises:
        StreamError: this one has not.
    """
    try:
        zstd = import_module("compression.zstd")
    except ImportError:
        raise StreamError(
            "it is packed with zstd, and Python's package for that is not installed",
            f"pip install zstandard, or: {_ZSTD_COMMAND}",
        ) from None
    options = {zstd.DecompressionParameter.window_log_max: _MEMORY.bit_length() - 1}
    return (lambda: cast(_Decoder, zstd.ZstdDecompressor(options=options))), zstd.ZstdError


_KINDS: dict[bytes, Callable[[], tuple[Callable[[], _Decoder], type[Exception]]]] = {
    b"\x1f\x8b": _gzip,
    b"BZh": _bz2,
    b"\xfd7zXZ\0": _xz,
    b"]\0\0": _xz,
    b"\x28\xb5\x2f\xfd": _zstd,
    **{bytes([first]) + b"\x2a\x4d\x18": _zstd for first in range(0x50, 0x60)},  # frames that are skipped: pzstd
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
    """Return the data, unpacked once if it is packed.

    Args:
        data: as stored.
        allowance: how much it may unpack to.

    Raises:
        StreamError: the data is damaged, breaks off or unpacks to too much; what came before that was given.
    """
    head, data = peek(data, _tells)
    if not is_packed(head):
        return data
    for beginning, (name, command) in _OTHERS.items():
        if head.startswith(beginning):
            raise StreamError(f"{name} is not unpacked here", f"unpack it: {command} | nccl-inspect summarize")
    kind = next(kind for beginning, kind in _KINDS.items() if head.startswith(beginning))
    return _unpack_pieces(data, *kind(), allowance or Allowance())


def _tells(head: bytes) -> bool:
    """Return whether these first bytes show if the data is packed."""
    return len(head) >= _MAGIC or (head != b"" and not any(start.startswith(head) for start in _BEGINNINGS))


def _unpack_pieces(
    data: Pieces, decoder: Callable[[], _Decoder], error: type[Exception], allowance: Allowance
) -> Iterator[bytes]:
    parts = _Parts(decoder)
    try:
        for piece in data:
            allowance.take(len(piece))
            yield from allowance.count_pieces(parts.unpack(piece))
    except error as problem:
        raise StreamError(f"the compressed data is damaged ({_one_line(problem)})", "copy the file again") from None
    if parts.inside:
        raise StreamError("the compressed data is damaged (it breaks off)", "copy the file again")


def _one_line(problem: Exception) -> str:
    return " ".join(str(problem).split()) or type(problem).__name__


class _Parts:
    """Unpacks one part after the other: packed files may be put together by ``cat``."""

    def __init__(self, decoder: Callable[[], _Decoder]) -> None:
        self._decoder = decoder
        self._current: _Decoder | None = None

    @property
    def inside(self) -> bool:
        """Return whether a part has begun and not ended."""
        return self._current is not None

    def unpack(self, data: bytes) -> Iterator[bytes]:
        """Yield what these packed bytes stand for, in steps."""
        while True:
            if self._current is None:
                data = data.lstrip(b"\0")  # parts may be padded
                if not data:
                    return
                self._current = self._decoder()
            out = self._current.decompress(data, BLOCK)
            if out:
                yield out
            if self._current.eof:
                data, self._current = self._current.unused_data, None
                continue
            data = getattr(self._current, "unconsumed_tail", b"")
            if not data and len(out) < BLOCK:
                return
