"""Matches the beginning of messages that are cut off: ``re`` has no partial matches.

The package ``regex`` has them. It is compiled, and where Python runs without compiled packages, as in a browser, the
pattern of a shape is rewritten instead: at the end of the message everything that is still to come counts as matched.
"""

import re
from functools import lru_cache
from typing import Protocol

_TOKEN = re.compile(
    rb"(?P<open>\((?:\?[:>=!])?)|(?P<close>\)(?:(?:[*+?]|\{[\d,]*\})[?+]?)?)|\||\\Z"
    rb"|(?P<atom>\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|.)(?:(?P<times>[*+?]|\{(?P<least>\d*)(?:,\d*)?\})[?+]?)?",
    re.DOTALL,
)
"""The parts of what :class:`nccl_inspect.grammar.shape.Shape` writes."""
_NEVER = b"(?!"
"""Opens a negative lookahead, which a message that ends there satisfies."""


class Beginning(Protocol):
    """Whether bytes can be the beginning of a message."""

    def __call__(self, message: bytes, end: int) -> bool:
        """Whether the message up to ``end`` can."""


@lru_cache(maxsize=256)
def beginning(pattern: bytes) -> Beginning:
    """A test for beginnings of the messages that a pattern matches."""
    try:
        import regex  # only diagnostics need partial matches; `re` compiles and matches faster
    except ImportError:
        own = re.compile(rewritten(pattern), re.DOTALL)
        return lambda message, end: own.fullmatch(message, 0, end) is not None
    made = regex.compile(pattern, regex.DOTALL)
    return lambda message, end: made.fullmatch(message, endpos=end, partial=True) is not None


def rewritten(pattern: bytes) -> bytes:
    """The pattern of all beginnings of the messages that a pattern matches."""
    made, at, size = list[bytes](), 0, len(pattern)
    while at < size:
        if pattern.startswith(_NEVER, at):
            after = _closed(pattern, at)
            made.append(pattern[at:after])
        else:
            token = _TOKEN.match(pattern, at)
            assert token
            made.append(_part(token))
            after = token.end()
        at = after
    return b"".join(made)


def _closed(pattern: bytes, at: int) -> int:
    """The end of the group that opens at a position."""
    depth = 0
    for token in _TOKEN.finditer(pattern, at):
        depth += (token["open"] is not None) - (token["close"] is not None)
        if depth == 0:
            return token.end()
    return len(pattern)


def _part(token: re.Match[bytes]) -> bytes:
    atom = token["atom"]
    if atom is None:
        return token[0]
    least = {None: 1, b"*": 0, b"+": 1, b"?": 0}.get(token["times"])
    if least is None:
        least = int(token["least"] or 0)
    if least == 0:
        return token[0]
    fewer = b"%s{0,%d}" % (atom, least - 1) if least > 1 else b""
    return b"(?:%s|%s\\Z)" % (token[0], fewer)
