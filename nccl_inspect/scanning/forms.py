"""The grammar of connection lines for columns: texts that differ in digits only are recognised on one of them.

A form is learned from a real line, through its production: which of its bytes are the digits of which field. The
same bytes are then read of all texts of that form. This module needs numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.grammar.engine import Grammar
from nccl_inspect.grammar.types import field_type
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.scanning.connection_table import NONE, Part, Way
from nccl_inspect.scanning.counts import Text
from nccl_inspect.scanning.spans import ZERO, Block, Column, Rows, number_of, weights_of
from nccl_inspect.util.records import slots
from nccl_inspect.util.text import decode

CHANNEL = b"INFO Channel "
TAIL = len(CHANNEL) + 2
"""Bytes of level and text up to the end of the channel's number, which has two digits."""
_LEVEL = len(b"INFO ")
_FIELDS = ("conn", "src", "dst", "src_dev", "dst_dev", "nic_index", "pxn_rank", "via_rank", "_via_dev")
_NUMBER_WIDTH = 6
"""Digits of a number that is read so: no rank has more."""
_NAME_WIDTH = 9
_MAX_FORMS = 10_000
_DEVICE = field_type("id")


class _Field(NamedTuple):
    name: str
    begin: int
    """Bytes behind the number of the channel."""
    digits: Sequence[int]
    """The same of its digits."""
    width: int
    is_text: bool


class _Form(NamedTuple):
    """Texts that differ in digits only; places are bytes behind the number of the channel."""

    way: int
    width: int
    fields: Sequence[_Field]
    digits: list[int]
    """The places of their digits."""
    weights: NDArray[np.int64]
    """What each digit counts in each field."""
    firsts: list[int]
    """Those of the digits that are not zero."""
    fixed: list[int]
    """The places of other digits: others there may make another message of it."""
    same: NDArray[np.uint8]
    """These digits."""


class Read(NamedTuple):
    """Texts in columns: the way of each, an index; -1 where it is to be read line by line."""

    way: Column
    columns: dict[str, Column]


class Forms:
    """Forms of connection lines.

    Args:
        grammar: what recognises a text.
        text_of: what level and message of a line mean to its reader; None where that depends on the line.
    """

    def __init__(self, grammar: Grammar, text_of: Callable[[bytes, Origin], Text | None]) -> None:
        self._grammar = grammar
        self._text_of = text_of
        self._forms: dict[bytes, _Form | None] = {}
        self.ways: list[Way] = []
        self.texts: list[str] = []
        self._text_numbers: dict[str, int] = {}

    def forget(self) -> None:
        """Forget what was learned: from here on texts may mean something else."""
        self._forms.clear()

    def read(self, block: Block, begin: Rows, end: Rows, origin_of: Callable[[int], Origin]) -> Read:
        """Read texts.

        Args:
            block: where they stand.
            begin: where each continues after the number of the channel.
            end: where it ends.
            origin_of: who printed it.
        """
        columns = {name: np.full(len(begin), NONE, np.int32) for name in _FIELDS}
        way = np.full(len(begin), NONE, np.int32)
        number, where = number_of(block.shaped(begin, end))
        order = np.argsort(number, kind="stable")
        rows = np.split(order, np.cumsum(np.bincount(number, minlength=len(where)))[:-1])
        for at, of_shape in zip(where.tolist(), rows, strict=False):  # of nothing, numpy makes one part
            text = block.data[begin[at] - TAIL : end[at]]
            shape = text[TAIL:].translate(ZERO)
            form = self._forms[shape] if shape in self._forms else self._learn(shape, text, origin_of(at))
            if form is not None:
                self._fill(form, of_shape, block, begin, way, columns)
        return Read(way, columns)

    def _fill(
        self, form: _Form, rows: Rows, block: Block, begin: Rows, way: Column, columns: dict[str, Column]
    ) -> None:
        """Read texts of one form."""
        start = begin[rows]
        letters = block.windows(start, form.width)
        is_sound = (letters[:, form.fixed] == form.same).all(axis=1) & (letters[:, form.firsts] != ord("0")).all(axis=1)
        values = (letters[:, form.digits].astype(np.int64) - ord("0")) @ form.weights
        for field, value in zip(form.fields, values.T, strict=True):
            if field.is_text:
                _, first, number = np.unique(value, return_index=True, return_inverse=True)
                begins = (start[first] + field.begin).tolist()
                value = np.array([self._text(block.data[at : at + field.width]) for at in begins], np.int32)[number]
            columns[field.name][rows] = value
        way[rows] = np.where(is_sound, form.way, NONE)

    def _text(self, text: bytes) -> int:
        number = self._text_numbers.setdefault(decode(text), len(self.texts))
        if number == len(self.texts):
            self.texts.append(decode(text))
        return number

    def _learn(self, shape: bytes, rest: bytes, origin: Origin) -> _Form | None:
        if len(self._forms) >= _MAX_FORMS:
            self._forms.clear()
        form = self._forms[shape] = self._form(rest, origin)
        return form

    def _form(self, rest: bytes, origin: Origin) -> _Form | None:
        """The form of the text of a line; None where it has none."""
        text = self._text_of(rest, origin)
        parsed = text.parsed if text else None
        if text is None or parsed is None or parsed.kind is not ChannelConnect or rest[_LEVEL:] != text.message:
            return None
        spans = self._spans(text.message)
        if spans is None:
            return None
        begin, end = TAIL - _LEVEL - 2, TAIL - _LEVEL
        parts: list[str | Part] = []
        fields: list[_Field] = []
        at = 0
        free = set[int]()
        for start, stop, part in spans:
            digits = [place for place in range(start, stop) if rest[_LEVEL + place : _LEVEL + place + 1].isdigit()]
            is_channel = part.name == "channel"
            if is_channel != ((start, stop) == (begin, end)):
                return None
            if not is_channel:
                if part.name not in _FIELDS or len(digits) > (_NAME_WIDTH if part.is_text else _NUMBER_WIDTH):
                    return None
                if not part.is_text and len(digits) < stop - start:
                    return None
                fields.append(_Field(part.name, start - end, [one - end for one in digits], stop - start, part.is_text))
            free.update(digits)
            parts += [decode(text.message[at:start]), part]
            at = stop
        parts.append(decode(text.message[at:]))
        if not self._is_general(text.message, free):
            return None
        fixed = [
            place for place, byte in enumerate(text.message) if 48 <= byte < 58 and place not in free and place >= end
        ]
        event = parsed.event
        assert isinstance(event, ChannelConnect)
        names = slots(ChannelConnect)
        numbers = tuple(part.name for _, _, part in spans if part.name in names)
        self.ways.append(Way(event, text.level, parts, numbers))
        digits = [place for field in fields for place in field.digits]
        return _Form(
            way=len(self.ways) - 1,
            width=len(text.message) - end,
            fields=fields,
            digits=digits,
            weights=weights_of([len(field.digits) for field in fields]),
            firsts=[field.begin for field in fields if field.width > 1 and not field.is_text],
            fixed=[place - end for place in fixed],
            same=np.frombuffer(text.message, np.uint8)[fixed],
        )

    def _spans(self, message: bytes) -> list[tuple[int, int, Part]] | None:
        """The places of the numbers and device names in a message, in their order; None for no known one."""
        parsed = self._grammar.parse(message)
        match = parsed.production.match(message) if parsed else None
        if parsed is None or match is None:
            return None
        spans = []
        for name, kind, group in parsed.production.shape.fields:
            if match[group] is not None and (kind.read is int or kind is _DEVICE):
                spans.append((*match.span(group), Part(name, len(kind.write(0)), kind is _DEVICE)))
        return sorted(spans, key=lambda span: span[:2])

    def _is_general(self, message: bytes, free: set[int]) -> bool:
        """Whether the message means the same with other digits in these places."""
        own = self._grammar.parse(message)
        spans = [span[:2] for span in self._spans(message) or ()]
        for digit in b"19":
            other = bytes(digit if place in free else byte for place, byte in enumerate(message))
            parsed = self._grammar.parse(other)
            if own is None or parsed is None or parsed.production is not own.production:
                return False
            if [span[:2] for span in self._spans(other) or ()] != spans:
                return False
        return True
