"""NCCL's messages in the lines of others: whether a text is enough of one, and where in a line it begins."""

from __future__ import annotations

import os
import re
from functools import cache

from nccl_inspect.event import types as events
from nccl_inspect.grammar.engine import Grammar, Parsed
from nccl_inspect.ingest.lines import decoration, prefix
from nccl_inspect.ingest.lines.elisions import undecorated
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.scanning.counts import Text
from nccl_inspect.util.levels import ANY, STATEMENTS
from nccl_inspect.util.text import decode

_LETTER, _SIGN = re.compile(rb"[A-Za-z]"), re.compile(rb"\S")
_FEW_LETTERS, _FEW_SIGNS, _MANY_SIGNS = 4, 10, 30
_PLAIN_WORD = re.compile(rb"(?<!\S)[A-Za-z]+[.,;]?(?!\S)")
_MANY_WORDS = 6
_OPENING = (b"'", b'"', b"(")
"""The text before a quotation of NCCL, which may be a sentence."""
_SENTENCE = re.compile(
    rb"\b(?:is|are|was|were|be|been|the|a|an|you|your|we|our|I|it|its|this|that|these|which|when|where|what|should|"
    rb"would|can|will|may|must|and|or|but|because|so|with|in|of|for|to|from|by|has|have|had|if|then|not)\b"
)
"""Words that make a sentence of what stands where the grammar takes any text."""
NUMBERED = frozenset((events.CommInit, events.CommSplit, events.ChannelConnect, events.RingOrder, events.TreeLinks))
"""Events that are about numbers: where one was left out, or torn off, nothing is left."""
MARK = b"NCCL"
_LEVEL = re.compile(MARK + rb"[ _-]{1,3}(?P<level>" + ANY + rb")(?:ING)?\b[\]:*_]{0,4} *(?=[\w\[(</])")
"""What is before a message, as loggers and people write it."""
_LED = re.compile(rb"(?:^|[\])>|:`'\"*\x80-\xff-]|:\d+|\.(?:cc|cu|h)) *\[?$")
"""How a line begins before that, unless it is a sentence."""
_TORN = re.compile(rb":\d+ ?\[|\[-?\d{0,10}\] *$")
"""What is left of NCCL's own prefix where it was torn: then the message may be, too."""
_HEAD = re.compile(rb":\d+:\d+ \[")
_MOST_HEADS = 1
"""Where a line has more of them, two were glued together, and nobody knows whose the statement is."""
_IN_LOG = re.compile(rb"(?:[\]|>-]|:\d+) *$")
"""What is before it in a log."""


def quoted(line: bytes, grammar: Grammar, *, prose: bool = True) -> tuple[Origin, Text] | None:
    """The statement of NCCL in a line that has anything before it; None where it is not there as a whole.

    A warning that nobody knows is one where a logger, or a colon, and no sentence is before it.

    Args:
        line: one whose prefix is not that of NCCL.
        grammar: what to recognise messages with.
        prose: whether a sentence may be before it: people quote messages, and write about them.
    """
    unknown = None
    for match in _LEVEL.finditer(line):
        head = line[: match.start()]
        origin = prefix.nearest(head)
        if origin is None or (is_sentence(head) and not prose):
            return None
        is_statement = decode(match["level"]) in STATEMENTS
        if not is_statement and (_TORN.search(head) or not _LED.search(head)):
            continue
        for text in decoration.endings(undecorated(line[match.end() :])):
            parsed = grammar.parse(text)
            if parsed is not None and parsed.kind not in NUMBERED and is_telling(parsed, marked=True):
                return origin, Text(decode(match["level"]), text, parsed)
        is_glued = len(_HEAD.findall(head)) > _MOST_HEADS
        if is_statement and not is_glued and _LED.search(head) and (_IN_LOG.search(head) or not is_sentence(text)):
            unknown = origin, Text(decode(match["level"]), text, None)
    return unknown


def is_telling(parsed: Parsed, *, marked: bool = False) -> bool:
    """Whether a message is one without a prefix: enough of it is NCCL's, and the rest is not a sentence.

    Args:
        parsed: the message.
        marked: whether ``NCCL`` and a level are before it: then it may be short.
    """
    if parsed.kind is events.ErrorCascade:
        return True
    production, message = parsed.production, parsed.message
    match = production.match(message)
    assert match is not None
    own, free, end = b"", list[bytes](), 0
    for start, stop in production.shape.open_spans(match):
        own += message[end:start]
        end = stop
        if b" " in message[start:stop] and message[start - 1 : start] not in _OPENING:
            free.append(_system_error().sub(b"", message[start:stop]))
    own += message[end:]
    signs = len(_SIGN.findall(own))
    if not marked and (signs < _FEW_SIGNS or len(_LETTER.findall(own)) < _FEW_LETTERS):
        return False
    if marked:
        return all(len(_PLAIN_WORD.findall(text)) <= _MANY_WORDS for text in free)
    return signs >= _MANY_SIGNS or not any(map(is_sentence, free))


def is_sentence(text: bytes) -> bool:
    """Whether a text is one that people write."""
    return _SENTENCE.search(text) is not None or len(_PLAIN_WORD.findall(text)) > _MANY_WORDS


@cache
def _system_error() -> re.Pattern[bytes]:
    """Return what the system says of a failed call."""
    return re.compile(b"|".join(re.escape(os.strerror(number).encode()) for number in range(1, 134)))
