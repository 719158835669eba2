"""Logs in UTF-16, as Windows PowerShell writes them, with a byte order mark or without; and the mark of UTF-8."""

from __future__ import annotations

import codecs

from nccl_inspect.ingest.sources.streams import Pieces, peeked

_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_ENOUGH = 64
_SHARE = 0.9


def as_utf8(data: Pieces) -> Pieces:
    """Return the same text in UTF-8; bytes of any other encoding stay as they are."""
    head, data = peeked(data, lambda taken: len(taken) >= _ENOUGH or b"\n" in taken)
    if head.startswith(codecs.BOM_UTF8):
        return _without(data, len(codecs.BOM_UTF8))
    name = _utf16(head)
    return _recoded(_without(data, 2 * head.startswith(_MARKS)), name) if name else data


def is_recoded(head: bytes) -> bool:
    """Whether a file that begins so is read as other bytes than it has."""
    return head.startswith(codecs.BOM_UTF8) or bool(_utf16(head))


def _utf16(head: bytes) -> str:
    """The name of the UTF-16 in which Latin text has every second byte zero; empty when it is not that."""
    head = head[2 * head.startswith(_MARKS) : _ENOUGH]
    pairs = len(head) // 2
    if pairs < 4:
        return ""
    for zeros, others, name in ((head[1::2], head[::2], "utf-16-le"), (head[::2], head[1::2], "utf-16-be")):
        if zeros.count(0) >= _SHARE * pairs and others.count(0) == 0:
            return name
    return ""


def _without(data: Pieces, size: int) -> Pieces:
    for piece in data:
        if rest := piece[size:]:
            yield rest
        size = max(size - len(piece), 0)


def _recoded(data: Pieces, name: str) -> Pieces:
    decoder = codecs.getincrementaldecoder(name)("replace")
    for piece in data:
        if text := decoder.decode(piece):
            yield text.encode()
    if text := decoder.decode(b"", final=True):
        yield text.encode()
