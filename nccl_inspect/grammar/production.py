"""A production: one message shape, with everything that its grammar file says about it.

``read`` turns the bytes of a message into named values, ``render`` turns them back into the same bytes.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from nccl_inspect.event.types import KINDS, Event, Message
from nccl_inspect.grammar import notation
from nccl_inspect.grammar.layers import BY_NAME, Layer, list_roles
from nccl_inspect.grammar.notation import Field, Literal, Shape, Value
from nccl_inspect.util.records import Frozen, slots
from nccl_inspect.util.text import decode, encode

MIN_SIGN = 8  # bytes of a text that shows a line of another program
_TRIES = 1000  # number of non-matching messages after which compiling the pattern is faster than checking literals


Maker: TypeAlias = Callable[[re.Match[bytes], bytes], Event]  # the event of a match of a message
_OF_EVENT = {"CollectiveTimeout": Layer.WAIT, "ErrorCascade": Layer.CALL, "ProcessEnded": Layer.END}
_OF_ECHO = {"nccl": Layer.LOSS, "torch": Layer.NONE, "launchers": Layer.LAUNCHER}
"""By dialect the layer of what only repeats a failure (``tone=echo``)."""


class Details(Frozen):
    """Holds what a grammar file says about a production, besides its shape."""

    event: str = "Message"  # the event class it becomes
    constants: Mapping[str, str] = field(default_factory=dict)  # constant fields of the event
    versions: str = ""  # first and last release that print it, ``2.14.3..2.30.4``; empty for all
    subsys: str = "INIT"
    """``NCCL_DEBUG_SUBSYS`` names, each of which shows the line; ``ALWAYS`` if it is never filtered."""
    says: str = ""  # what the line means, for people
    rule: str = ""  # the rule that judges the line; empty if it leads to none
    roles: frozenset[str] = frozenset()  # names in ``roles.txt``
    layer: str = ""  # the name of a layer of failure; empty where roles and tone say it
    samples: tuple[str, ...] = ()  # messages of real logs, or made from the format string (marked in the file)
    fragments: Mapping[str, str] = field(default_factory=dict)


class Production:
    """One message shape of a dialect.

    Args:
        name: unique within the dialect, such as ``channel-p2p``.
        dialect: whose message it is: ``nccl``, ``aws-ofi-nccl``, …
        line: the shape in the notation of :mod:`nccl_inspect.grammar.notation`.
        load: reads the other keys; called on first use, because a short log needs few productions.
    """

    bare = False  # whether the line may come without a prefix
    foreign = False  # whether it is a whole line of another program
    general = False  # whether it is tried only if no other production matches
    rest = False  # whether it takes what the other productions leave of a form that only its dialect has
    traced = False  # whether it only matches the line below the frames of a traceback
    last = False  # whether it only matches the last lines of a log
    follows = ""  # the multi-line message that this line without a prefix continues
    _regex: re.Pattern[bytes] | None = None
    _tried = 0

    def __init__(self, name: str, dialect: str, family: str, line: str, load: Callable[[], Details] = Details) -> None:
        self.name = name
        self.dialect = dialect
        self.family = family
        self.line = line
        self._load = load

    if TYPE_CHECKING:
        event: str
        constants: Mapping[str, str]
        versions: str
        subsys: str
        says: str
        rule: str
        roles: frozenset[str]
        samples: tuple[str, ...]
    else:

        def __getattr__(self, name):
            """Return what :class:`Details` hold: the file is read further when somebody asks."""
            if name.startswith("_"):
                raise AttributeError(name)
            return getattr(self.details, name)

    @property
    def key(self) -> tuple[str, str]:
        """Return the dialect and the name: no other production has both."""
        return self.dialect, self.name

    @cached_property
    def details(self) -> Details:
        """Return the event, releases, meaning and samples.

        A GrammarError says that the file is not well formed here.
        """
        return self._load()

    @cached_property
    def nodes(self) -> notation.Sequence:
        """Return the parsed notation."""
        return notation.parse(self.line)

    @cached_property
    def shape(self) -> Shape:
        """Return the compiled notation."""
        fragments = self.details.fragments.items()
        return Shape(self.nodes, {name: Shape(notation.parse(text), whole=False) for name, text in fragments})

    @property
    def layer(self) -> Layer:
        """Return how near to a cause the line is: as the file says, else by its event, its roles and its tone."""
        if self.details.layer:
            return BY_NAME[self.details.layer]
        if self.event in _OF_EVENT:
            return _OF_EVENT[self.event]
        for name, (_, layer) in list_roles().items() if self.roles else ():
            if layer is not None and name in self.roles:
                return layer
        return _OF_ECHO.get(self.dialect, Layer.NONE) if self.constants.get("tone") == "echo" else Layer.RESOURCE

    @cached_property
    def needle(self) -> bytes:
        """Return a literal in every message of this shape."""
        return notation.quick_needle(self.line).encode()

    @cached_property
    def signs(self) -> tuple[bytes, ...]:
        """Return literals one of which is in every message of this shape: the needle, unless that is short."""
        return tuple(sign.encode() for sign in notation.signs(self.line, MIN_SIGN))

    @cached_property
    def _literals(self) -> list[bytes]:
        return [literal.encode() for literal in notation.quick_needles(self.line) if literal]

    @cached_property
    def _beginnings(self) -> tuple[int, tuple[bytes, ...]]:
        """Return the place of a word that may be anything, else 0, and beginnings, or those of the rest after it."""
        place, nodes = 0, self.nodes
        match nodes:  # a program's own time stamp is such a word
            case Literal(lead), Field(_, "w"), Literal(after), *rest if " " in after:
                place, nodes = len(lead.encode()), (Literal(after.partition(" ")[2]), *rest)
        return place, tuple(text.encode() for text in notation.leads(nodes, limit=256))

    def may_fit(self, message: bytes) -> bool:
        """Return whether literals and beginning match: cheaper than compiling the shape."""
        if self.needle not in message:
            return False
        at = 0
        for literal in self._literals if "shape" not in vars(self) else ():  # not compiled yet: all must be there
            if (position := message.find(literal, at)) < 0:
                return False
            at = position + len(literal)
        word, beginnings = self._beginnings
        return message.startswith(beginnings, message.find(b" ", word) + 1 if word else 0)

    def fit(self, message: bytes) -> re.Match[bytes] | None:
        """Return what :meth:`match` does for a message with the needle; several messages compile the shape."""
        if self._regex is None:
            self._tried += 1
            if self._tried < _TRIES and not self.may_fit(message):
                return None
            self._regex = self.shape.regex
        return self._regex.fullmatch(message)

    @cached_property
    def make_event(self) -> Maker:
        """Return what makes the event of a matched message, without source and line."""
        kind: Any = KINDS[self.event]
        shape = self.shape
        is_message = kind.arrange.__func__ is Message.arrange.__func__  # type: ignore[attr-defined]
        if not is_message and kind.arrange.__func__ is not Event.arrange.__func__:  # type: ignore[attr-defined]
            return lambda match, message: kind.build(self, shape.values(match), decode(message))

        fields: dict[str, list[tuple[int, Callable[[bytes], object]]]] = {}
        for name, kind_of_field, group in shape.fields if not is_message else ():
            fields.setdefault(name, []).append((group - 1, kind_of_field.read))
        # Names that begin with "_" are part of the pattern only; events do not have them.
        blank: Event = kind.build(self, dict.fromkeys(fields), "")
        puts = slots(kind)
        fixed = [(put, getattr(blank, name)) for name, put in puts.items() if name not in fields and name != "message"]
        read = [(puts[name], *sources[0]) for name, sources in fields.items() if len(sources) == 1 and name in puts]
        chosen = [(puts[name], sources) for name, sources in fields.items() if len(sources) > 1 and name in puts]
        put_message, put_values = puts["message"], puts.get("values")

        def make(match: re.Match[bytes], message: bytes) -> Event:
            event: Event = kind.__new__(kind)
            for put, value in fixed:
                put(event, value)
            if is_message and put_values:  # one field has all fields of the message
                put_values(event, kind.arrange(shape.values(match))["values"])
            groups = match.groups()
            for put, group, value_of in read:
                data = groups[group]
                put(event, None if data is None else value_of(data))
            for put, options in chosen:
                values = [value_of(groups[group]) for group, value_of in options if groups[group] is not None]
                put(event, values[-1] if values else None)
            put_message(event, decode(message))
            return event

        return make

    def match(self, message: bytes) -> re.Match[bytes] | None:
        """Return the match if the whole message has this shape."""
        return self.shape.regex.fullmatch(message)

    def render(self, match: re.Match[bytes]) -> bytes:
        """Return the message, rendered from the values of a match."""
        shape = self.shape
        return encode(shape.write(shape.values(match), shape.options_taken(match)))

    def read(self, message: bytes) -> dict[str, Value] | None:
        """Return the named values of the message; None if it has another shape."""
        match = self.match(message)
        return self.shape.values(match) if match else None

    def lacks_end(self, match: re.Match[bytes]) -> bool:
        """Return whether the last field of a matched message is empty."""
        is_field = isinstance(self.nodes[-1], Field)
        return is_field and not match[self.shape.fields[-1][2]].strip()

    @cached_property
    def _loose(self) -> re.Pattern[bytes]:
        return re.compile(notation.loosen(self.shape.pattern).encode(), re.DOTALL)

    def respace(self, message: bytes) -> bytes | None:
        """Return a message as this shape prints it; None if it differs in more than blanks and quotation marks."""
        match = self._loose.fullmatch(message)
        return self.render(match) if match else None

    def count_matched(self, message: bytes) -> int:
        """Return the number of bytes of the message that match this shape: for error texts and cut lines."""
        fits = notation.beginning(self.shape.pattern.encode())
        return bisect_left(range(1, len(message) + 1), True, key=lambda end: not fits(message, end))

    def is_cut(self, message: bytes) -> bool:
        """Return whether the message is an incomplete beginning of this shape."""
        return 0 < len(message) == self.count_matched(message) and self.match(message) is None
