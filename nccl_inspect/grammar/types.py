"""The field types of the notation: how each is matched, read into a value and written back.

Every pattern accepts only what printf would print, so that a value always gives its text back and a torn or
foreign text is refused. Digits are limited so that hostile input can neither overflow a 64-bit column nor cost time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from sys import intern
from typing import TypeAlias

from nccl_inspect.errors import GrammarError
from nccl_inspect.util import signals
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.text import decode

Value: TypeAlias = int | float | str | bool | tuple[object, ...] | None


@frozen
class FieldType(Frozen):
    """One type: its pattern (without groups), the reader of the matched bytes and the writer of the value."""

    pattern: str
    read: Callable[[bytes], Value]
    write: Callable[[object], str]
    python: type
    free: bool = False
    """Whether it is text that may hold anything."""
    run: str = ""
    """The class of characters that may repeat at its end; empty if their number is limited."""


_INT = r"0|-?[1-9]\d{0,17}"
_PADDED_INT = re.compile(r"(0?)([2-9]|[1-9]\d)$")
_FIXED = re.compile(r"(\d*)\.(\d)f$")
_FLOAT_DIGITS = 15
"""Decimal digits that a 64-bit float always gives back."""


def _text(value: object) -> str:
    return str(value)


@lru_cache(maxsize=256)
def field_type(spec: str) -> FieldType:
    """The type that a field's specification names.

    Raises:
        GrammarError: no such type.
    """
    if plain := _PLAIN.get(spec):
        return plain
    if spec.startswith("="):
        words = "|".join(sorted(map(re.escape, spec[1:].split("¦")), key=len, reverse=True))
        return FieldType(words, decode, _text, str)
    if spec.startswith("?"):
        word = spec[1:]
        return FieldType(f"(?:{re.escape(word)})?", bool, lambda value: word if value else "", bool)
    if padded := _PADDED_INT.match(spec):
        return _padded(zero=bool(padded[1]), width=int(padded[2]))
    if fixed := _FIXED.match(spec):
        return _fixed(width=int(fixed[1] or 0), digits=int(fixed[2]))
    raise GrammarError(f"no such field type: '{spec}'")


def _padded(zero: bool, width: int) -> FieldType:
    if zero:
        shapes = [rf"[1-9]\d{{{width},17}}", rf"\d{{{width}}}"]  # the longer first: in a list nothing follows an item
        return FieldType("|".join(shapes), int, lambda value: f"{value:0{width}d}", int)
    shapes = [" " * (width - 1) + r"\d"]
    for size in range(2, width + 1):
        more = f"{size - 1}" if size < width else f"{size - 1},17"
        signed = f"{max(size - 2, 0)}" if size < width else f"{max(size - 2, 0)},17"
        shapes.append(" " * (width - size) + rf"(?:[1-9]\d{{{more}}}|-[1-9]\d{{{signed}}})")
    return FieldType("|".join(shapes), int, lambda value: f"{value:{width}d}", int)


def _fixed(width: int, digits: int) -> FieldType:
    longest = _FLOAT_DIGITS - digits
    shapes = []
    for sign in ("", "-"):
        whole = 1
        while (size := len(sign) + whole + 1 + digits) < width:
            number = rf"[1-9]\d{{{whole - 1}}}" if whole > 1 else r"\d"
            shapes.append(" " * (width - size) + rf"{sign}{number}\.\d{{{digits}}}")
            whole += 1
        number = rf"[1-9]\d{{{whole - 1},{longest - 1}}}" if whole > 1 else rf"(?:0|[1-9]\d{{0,{longest - 1}}})"
        shapes.append(rf"{sign}{number}\.\d{{{digits}}}")
    return FieldType("|".join(shapes), float, lambda value: f"{value:{width or ''}.{digits}f}", float)


def _pointer(data: bytes) -> str:
    return intern(data.decode("ascii"))


def _word(data: bytes) -> str:
    """Return a text that many lines have, which is kept once."""
    return intern(decode(data))


_PLAIN = {
    "": FieldType(_INT, int, _text, int),
    "h": FieldType(r"0|[1-9a-f][0-9a-f]{0,15}", lambda data: int(data, 16), lambda value: f"{value:x}", int),
    "p": FieldType(r"\(nil\)|0x[0-9a-f]{1,16}", _pointer, _text, str),
    "id": FieldType(r"[0-9a-f]{1,16}", _pointer, _text, str),
    "num": FieldType(r"-?(?:\d{1,18}(?:\.\d{1,12})?(?:e[+-]\d{2,3})?|inf|nan)", decode, _text, str),
    "i": FieldType(r"-?\d{1,20}", decode, _text, str),
    "v": FieldType(r"[A-Za-z_][A-Za-z0-9_]*", _word, _text, str, run="[A-Za-z0-9_]"),
    "w": FieldType(r"[^ ]+", _word, _text, str, run="[^ ]"),
    "n": FieldType(r"[^/]+", decode, _text, str, run="[^/]"),
    "c": FieldType(r"[^ :\[\]]+", decode, _text, str, run=r"[^ :\[\]]"),
    "e": FieldType(r"(?:(?!No such file).)+", decode, _text, str, free=True),
    "hx": FieldType(r"[0-9A-F]{1,16}", _pointer, _text, str),
    "b": FieldType(r" *", decode, _text, str, run=" "),
    "sig": FieldType("|".join((r"\d{1,2}", r"(?:Signals\.)?SIG[A-Z0-9]{2,9}", *signals.WORDS)), decode, _text, str),
    "t": FieldType(r".*", decode, _text, str, free=True),
}
