"""Reads pickles that hold plain values only: dictionaries, lists, tuples, text, numbers, bytes.

A pickle is a program; one from a stranger may run anything. This reader looks up no name at all but the two by which
PyTorch's own pickler marks typed lists, and both give the list that they are given. What a pickle asks memory for is
bounded before it is read: places in the memo and lengths that the data cannot fill.
"""

from __future__ import annotations

import io
import pickle
import re
from typing import Any, NoReturn

_LIST_MARKS = {f"build_{kind}list" for kind in ("int", "tensor", "double", "bool")}
"""By which PyTorch writes lists of one type (torch/jit/_pickle.py)."""
_MEMO = 1 << 22  # places in the memo that are never too many; beyond them there is one for four bytes of data at most
_WIDEST = 9  # bytes of a number of 64 bits. Keys of dictionaries that collide need wider ones.
_RUN = re.compile(  # opcodes that need no look at their values: a run of them is passed at once
    rb"(?s:"
    rb"[hKq]."  # what stands most often comes first
    rb"|[^BCFGIJKLMPSTUVXcghijpqr.\x80\x82-\x84\x8a-\x8e\x95\x96]++"  # no argument
    rb"|r..[\0-\x3f]\0"  # a place of the memo that is not too high
    rb"|\x8a\x08.{8}"  # a number, as PyTorch writes it
    rb"|[Jj\x84]....|[M\x83]..|[\x80\x82].|[G\x95].{8}"  # of fixed length
    rb")*+"
)
_LENGTHS = {**dict.fromkeys(b"XTB\x8b", 4), **dict.fromkeys(b"UC\x8c\x8a", 1), **dict.fromkeys(b"\x8d\x8e\x96", 8)}
"""Opcodes with the width of the length that follows them."""


class PlainPickleError(ValueError):
    """The data is not a pickle of plain values."""


def loads(data: bytes) -> Any:
    """Return the value of a pickle; a PlainPickleError says that it is damaged, or asks for more than plain values."""
    _check(data)
    try:
        return _Reader(io.BytesIO(data), encoding="utf-8", errors="replace").load()
    except PlainPickleError:
        raise
    except (MemoryError, OverflowError, RecursionError):
        raise PlainPickleError("its contents are larger than the file") from None
    except Exception as error:  # a damaged pickle may raise anything: EOFError, IndexError, KeyError, TypeError, …
        is_cut = not data.endswith(pickle.STOP)
        cut = "it breaks off: the process died while it wrote it, or the copy is not whole"
        raise PlainPickleError(cut if is_cut else type(error).__name__) from None


def _check(data: bytes) -> None:
    """Refuse what asks for more memory or time than its size explains; all else is left to the reader."""
    at, end = 0, len(data)
    while at < end:
        run = _RUN.match(data, at)
        at = run.end() if run else at
        opcode = data[at : at + 1]
        if opcode and (width := _LENGTHS.get(opcode[0])):
            length = int.from_bytes(data[at + 1 : at + 1 + width], "little")
            if length > end:
                raise PlainPickleError("a value is longer than the file")
            if opcode in b"\x8a\x8b" and length > _WIDEST:
                raise PlainPickleError("a number has more than 64 bits")
            at += 1 + width + length
        elif opcode == b"c":  # two lines name a function, which the reader looks at
            line_end = data.find(b"\n", at)
            at = (line_end >= 0 and data.find(b"\n", line_end + 1) + 1) or end
        elif opcode == b"r":
            if int.from_bytes(data[at + 1 : at + 5], "little") > max(end >> 2, _MEMO):  # the memo grows up to it
                raise PlainPickleError("its contents are larger than the file")
            at += 5
        elif opcode and opcode in b"FILSVPpgi":
            raise PlainPickleError("it is written as text, which PyTorch never does")
        else:
            return  # the end, or what the reader refuses


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "torch.jit._pickle" and name in _LIST_MARKS:
            return lambda items: items  # the list itself: copies of copies would fill the memory
        raise PlainPickleError(f"it asks for {module[:60]}.{name[:60]}, which a dump of plain values never does")

    def persistent_load(self, _pid: Any) -> NoReturn:
        raise PlainPickleError("it refers to objects outside of itself")

    def get_extension(self, _code: int) -> NoReturn:
        raise PlainPickleError("it uses registered extensions")
