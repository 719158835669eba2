"""Texts that differ in numbers and pointers only, read together: the grammar recognizes one of them.

As with connection lines (:mod:`nccl_inspect.scanning.forms`), a form is learned from a real text through its
production, and what a form does not prove of another text is left to the grammar. This module needs numpy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nccl_inspect.event.types import Event
from nccl_inspect.grammar import making
from nccl_inspect.grammar.engine import Parsed
from nccl_inspect.grammar.shape import ListType
from nccl_inspect.grammar.types import FieldType, field_type
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.scanning.counts import Text
from nccl_inspect.scanning.spans import Block, Rows, weights_of
from nccl_inspect.util.text import decode

TextOf: TypeAlias = Callable[[bytes, Origin], Text | None]
_Span: TypeAlias = tuple[str, FieldType | ListType, int, int]

_HEX = b"0123456789abcdef"
_SHAPE = bytes.maketrans(_HEX, b"0" * len(_HEX))
"""What takes texts together that may have one form."""
_FEW = 4
"""Texts of a shape that are worth a form."""
_MAX_FORMS = 10_000
_WIDEST = 15
"""Bytes of a number: those of this width are exact as floats, too."""
_NUMBER = re.compile(rb"(-?)(\d+)(?:\.(\d+))?")
_POINTERS = (field_type("p"), field_type("id"))
_ZERO = np.uint8(ord("0"))


class _Number(NamedTuple):
    """A field that is a number."""

    name: str
    digits: list[int]
    """Their places in the text."""
    divisor: int
    """What turns the digits into the number; negative for a negative one."""
    is_float: bool


class _Form(NamedTuple):
    """Holds what texts have in common."""

    text: Text
    """One of them."""
    width: int
    least: NDArray[np.uint8]
    """By places, the least byte that may be there."""
    most: NDArray[np.uint8]
    """The same of the greatest one."""
    digits: list[int]
    """The places of the digits of all numbers."""
    numbers: list[_Number]
    weights: NDArray[np.int64]
    """What each digit counts in each number."""
    pointers: list[tuple[str, int, int]]
    """Names and places in the decoded message of fields that are copied."""
    common: Event | None
    """What the events have in common, where anybody wants these."""


class TextForms:
    """Forms of texts.

    Args:
        text_of: what level and message of a line mean to its reader; None where that depends on the line.
        meaning_of: the same for what no line has.
        seen: what texts mean that were read lately.
        keep: remembers that.
    """

    def __init__(
        self,
        text_of: TextOf,
        meaning_of: TextOf,
        seen: Callable[[Iterable[bytes]], Iterable[Text | None]],
        keep: Callable[[bytes, Text], None],
    ) -> None:
        self.text_of = text_of
        self._meaning_of = meaning_of
        self._seen = seen
        self._keep = keep
        self._forms: dict[bytes, _Form | None] = {}
        self._general = set[tuple[object, ...]]()
        """Productions and fields of which texts mean the same with other numbers and pointers."""

    def forget(self) -> None:
        """Forget what was learned: from here on texts may mean something else."""
        self._forms.clear()
        self._general.clear()

    def read(self, block: Block, begin: Rows, end: Rows, origin_of: Callable[[int], Origin]) -> Iterable[Text | None]:
        """Yield what texts mean; None where that depends on the line.

        Args:
            block: where they stand.
            begin: where the level of each begins.
            end: where it ends.
            origin_of: who printed it.
        """
        rests = block.pieces(begin, end)
        texts = list(self._seen(rests))
        shapes: dict[bytes, list[int]] = {}
        for at, text in enumerate(texts):
            if text is None:
                shapes.setdefault(rests[at].translate(_SHAPE), []).append(at)
        for shape, places in shapes.items():
            form = self._form(shape, rests[places[0]], origin_of(places[0])) if len(places) >= _FEW else None
            if form is not None:
                made = self._made(form, block.windows(begin[places], form.width), [rests[at] for at in places])
                for at, text in zip(places, made, strict=True):
                    texts[at] = text
        for at, text in enumerate(texts):
            yield self.text_of(rests[at], origin_of(at)) if text is None or text.damaged else text

    def _form(self, shape: bytes, rest: bytes, origin: Origin) -> _Form | None:
        if shape not in self._forms:
            if len(self._forms) >= _MAX_FORMS:
                self._forms.clear()
            self._forms[shape] = self._learned(rest, origin)
        return self._forms[shape]

    def _made(self, form: _Form, letters: NDArray[np.uint8], rests: Sequence[bytes]) -> list[Text | None]:
        """Texts of a form; None for those that are not."""
        sound = np.flatnonzero(((letters >= form.least) & (letters <= form.most)).all(axis=1))
        level, parsed = form.text.level, form.text.parsed
        assert parsed is not None
        messages = [rests[at][len(level) + 1 :] for at in sound.tolist()]
        events: Sequence[Event | None] = [None] * len(sound)
        if form.common is not None:
            decoded = list(map(decode, messages))
            columns: dict[str, list[Any]] = {
                name: [message[since:until] for message in decoded] for name, since, until in form.pointers
            }
            values = (letters[sound][:, form.digits] - _ZERO).astype(np.int64) @ form.weights
            for number, column in zip(form.numbers, values.T, strict=True):
                columns[number.name] = (
                    column / number.divisor if number.is_float else column * number.divisor
                ).tolist()
            events = making.events(form.common, columns, decoded)
        texts: list[Text | None] = [None] * len(rests)
        production, kind = parsed.production, parsed.kind
        for at, message, event in zip(sound.tolist(), messages, events, strict=True):
            text = texts[at] = Text(level, message, Parsed(production, message, kind, event))
            if not form.pointers:  # else it hardly comes again
                self._keep(rests[at], text)
        return texts

    def _learned(self, rest: bytes, origin: Origin) -> _Form | None:
        """The form of a text; None where it has none."""
        text = self.text_of(rest, origin)
        spans = _spans(text, rest)
        if text is None or text.parsed is None or spans is None:
            return None
        if text.parsed.kind.kept and not making.is_plain(text.parsed.production):
            return None
        fields = _Fields(text)
        if not all(fields.add(*span) for span in spans) or not (fields.numbers or fields.letters):
            return None
        structure = text.level, text.parsed.production, *(name for name, *_ in spans)
        if structure not in self._general:
            if not self._is_general(text, spans, fields, origin):
                return None
            self._general.add(structure)
        return fields.form(rest, text.parsed)

    def _is_general(self, text: Text, spans: Sequence[_Span], fields: _Fields, origin: Origin) -> bool:
        """Whether a text means the same with other digits and letters."""
        for digit, lone, letter in ((b"1", b"1", b"a"), (b"9", b"9", b"f"), (b"1", b"0", b"0")):
            other = fields.with_others(digit, lone, letter)
            meaning = self._meaning_of(other, origin)
            if meaning is None or meaning.parsed is None or text.parsed is None:
                return False
            if meaning.parsed.production is not text.parsed.production or _spans(meaning, other) != spans:
                return False
        return True


class _Fields:
    """The fields of a text, as a form reads them.

    Args:
        text: with level and message.
    """

    def __init__(self, text: Text) -> None:
        self._text = text
        self._lead = len(text.level) + 1
        """Bytes before the message."""
        self.numbers: list[_Number] = []
        self.letters = set[int]()
        """Places of what is hexadecimal."""
        self._firsts: list[int] = []
        self._pointers: list[tuple[str, int, int]] = []
        self._constants: dict[str, object] = {}

    def add(self, name: str, kind: FieldType | ListType, since: int, until: int) -> bool:
        """Add a field; False where no form has such a one."""
        if isinstance(kind, ListType):
            return False
        message = self._text.message
        value = message[since:until]
        number = _NUMBER.fullmatch(value) if kind.read in (int, float) and len(value) <= _WIDEST else None
        if kind in _POINTERS:
            begin = since + 2 * value.startswith(b"0x")
            self.letters.update(self._lead + at for at in range(begin, until) if message[at] in _HEX)
            place = len(decode(message[:since]))  # characters before it may have several bytes
            self._pointers.append((name, place, place + until - since))
        elif number and not (number[1] and number[3]):
            digits = [self._lead + at for at in range(since, until) if message[at : at + 1].isdigit()]
            zero = kind.write(0) if kind.read is int else "0"
            if number[1] or len(number[2]) > (len(zero) if zero.startswith("0") else 1):
                self._firsts.append(digits[0])
            divisor = 10 ** len(number[3] or b"") * (-1 if number[1] else 1)
            self.numbers.append(_Number(name, digits, divisor, kind.read is float))
        else:
            self._constants[name] = kind.read(value)
        return True

    def with_others(self, digit: bytes, lone: bytes, letter: bytes) -> bytes:
        """Level and message with other digits in numbers, in those of one digit, and in pointers."""
        text = [bytes([byte]) for byte in self._text.level.encode() + b" " + self._text.message]
        for at in self.letters:
            text[at] = letter
        for number in self.numbers:
            for at in number.digits:
                text[at] = digit if len(number.digits) > 1 or at in self._firsts else lone
        return b"".join(text)

    def form(self, rest: bytes, parsed: Parsed) -> _Form:
        """Return what such texts have in common."""
        digits = [place for number in self.numbers for place in number.digits]
        least, most = np.frombuffer(rest, np.uint8).copy(), np.frombuffer(rest, np.uint8).copy()
        least[[*self.letters]], most[[*self.letters]] = 0x00, 0xFF
        least[digits], most[digits] = b"09"
        least[self._firsts] = ord("1")
        return _Form(
            self._text,
            len(rest),
            least,
            most,
            digits,
            self.numbers,
            weights_of([len(number.digits) for number in self.numbers]),
            self._pointers,
            making.blank(parsed.production, self._constants) if parsed.kind.kept else None,
        )


def _spans(text: Text | None, rest: bytes) -> list[_Span] | None:
    """The fields of a text: the name and type of each, and where it begins and ends; None where it is not plain."""
    parsed = text.parsed if text else None
    if (
        text is None
        or parsed is None
        or parsed.message != text.message
        or rest != text.level.encode() + b" " + text.message
    ):
        return None
    match = parsed.production.match(text.message)
    if match is None:
        return None
    fields = {name: (kind, group) for name, kind, group in parsed.production.shape.fields if match[group] is not None}
    if len(fields) < sum(match[group] is not None for _, _, group in parsed.production.shape.fields):
        return None
    return [(name, kind, *match.span(group)) for name, (kind, group) in fields.items()]
