"""What a log line means: its production in words, field by field."""

from __future__ import annotations

import builtins
import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import cache
from math import log
from pathlib import Path

from nccl_inspect.grammar.engine import Grammar, Parsed
from nccl_inspect.grammar.production import Production
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines import prefix
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.scanning import excerpts
from nccl_inspect.scanning.found import Counts, Text
from nccl_inspect.scanning.scanner import Scanner
from nccl_inspect.util.records import Record
from nccl_inspect.util.text import decode, encode, escape_controls

_FIELD = re.compile(r"\{[^{}]*\}")
_WORD = re.compile(r"[A-Za-z]{2,}")
_IDLE = frozenset(("the", "is", "it", "was", "are", "my", "there", "this", "that"))  # words that make no message
_SHARE = 0.7  # how much of a text must occur in a message, in the same order, to count as the same one
_LEAST = 6.5  # how much that must be: two words that few messages have
_CANDIDATES = 40
_OF_SAMPLE = 0.5  # what a word counts that only samples have: a field may hold any other


def similar_message(text: str, grammar: Grammar) -> Meaning | None:
    """Return the known message that has most of the words of a text in their order, without fields.

    None where none is near; rare words count more.
    """
    line = encode(text.strip("\r\n"))
    level, _, rest = parts[1].partition(b" ") if (parts := _split_line(line)) else (b"", b"", line)
    message = decode(rest)
    texts = {one: _words(_FIELD.sub(" ", one.line)) for one in grammar.productions}
    places = Counter(word for text in texts.values() for word in set(text))
    words = _words(message)
    if words and words[-1] not in places:  # it may have been cut
        words[-1] = max(
            (word for word in places if word.startswith(words[-1])), key=places.__getitem__, default=words[-1]
        )
    weights = {word: log(1 + len(texts) / places.get(word, 1)) for word in words}

    def likeness(production: Production) -> tuple[float, bool, float]:
        own = {word: weight if word in texts[production] else _OF_SAMPLE * weight for word, weight in weights.items()}
        shared = 0.0
        for sample in production.samples:  # what the words count that it has in the same order
            blocks = SequenceMatcher(None, words, _words(sample), autojunk=False).get_matching_blocks()
            shared = max(shared, sum(own[word] for block in blocks for word in words[block.a : block.a + block.size]))
        return shared, production.dialect == "nccl", -len(texts[production])

    most = sorted(texts, key=lambda one: -sum(weights[word] for word in weights.keys() & texts[one]))
    best = max(most[:_CANDIDATES], key=likeness)
    if likeness(best)[0] < max(_SHARE * sum(weights[word] for word in words), _LEAST):
        return None
    sample = max(best.samples, key=lambda candidate: SequenceMatcher(None, candidate, message).ratio(), default="")
    return Meaning(best, None, decode(level) or None, message, [], sample)


def _words(text: str) -> list[str]:
    words = (word.lower().removesuffix("s") for word in _WORD.findall(text))
    return [word for word in words if word not in _IDLE]


class Meaning(Record):
    """A recognised line."""

    production: Production
    origin: Origin | None  # who printed it; None when only the message was given
    level: str | None
    message: str
    fields: list[tuple[str, str, str]]  # name, value as printed, and what the name means (may be empty)
    sample: str = ""  # how such a message looks, of one that a text only resembles

    @property
    def worry(self) -> str:
        """Return whether to worry, in a few words."""
        tone = self.production.constants.get("tone", "")
        if not tone and self.level == "WARN":
            tone = "error"
        if tone in ("error", "echo") and _MAY_BE_HARMLESS.search(self.production.says):
            tone = "info"
        if self.production.event in ("ErrorCascade", "CudaFailure"):
            tone = self.production.constants.get("tone", "") or "error"
        if self.production.event == "CollectiveTimeout":
            tone = "wait"
        if self.production.event == "CommEnd" and ("how", "Abort") in ((name, value) for name, value, _ in self.fields):
            tone = "abort"
        return _WORRY.get(tone, "no, not on its own")


_MAY_BE_HARMLESS = re.compile(r"\b(?:harmless|normal(?! operation))\b", re.IGNORECASE)
"""In the meaning of a message: NCCL and its plugins also warn of normal conditions."""
_WORRY = {
    "wait": "yes: it waited until it timed out; this shows who waited, not who is at fault",
    "abort": "it depends: yes after an error or a timeout, but programs also abort healthy communicators",
    "error": "yes: something failed here",
    "echo": "yes, but look elsewhere: this only reports a failure of another rank or thread",
    "info": "it depends: see what the line means",
}


_EXCEPTION = re.compile(r"(?:[a-z_]\w*\.)+[A-Z]\w*[a-z]\w*|[A-Z]\w*(?:Error|Exception)")
"""``trainer.TrainingFailed``: with its module, or with a usual suffix."""


def explain_line(text: str, grammar: Grammar) -> Meaning | None:
    """Return the meaning of a line, or of a message without its prefix; None if no production matches.

    Colors and the envelope of a collector are removed first, as in a log.

    Args:
        text: the line; numbers may be left out, as in ``comm 0x...`` or ``busId XXXX``.
        grammar: what to recognise it with.
    """
    line = encode(text.strip("\r\n"))
    if envelopes.needs_cleaning(line):
        (line,) = envelopes.clean_lines([line], line)
    wrapped = envelopes.is_whole(line)  # the text after the message must not be taken for a part of it
    read: list[tuple[Origin, Text]] = []
    if meaning := None if wrapped else _direct(line, grammar):
        return meaning
    Scanner(grammar).scan([line], Counts(), lambda _number, origin, text: read.append((origin, text)))
    for origin, said in read:
        if said.parsed:
            return _meaning(said.parsed, None if origin is prefix.NOBODY else origin, said.level, said.message)
    if meaning := _direct(line, grammar) or _find_dependent_meaning(line, grammar):
        return meaning
    statement = _one_of([line], grammar)  # without the text that people put around it
    if statement is None or statement[1].parsed is None:
        return None
    origin, said = statement
    is_known = origin is not prefix.NOBODY and origin is not prefix.ALONE
    return _meaning(statement[1].parsed, origin if is_known else None, said.level if is_known else None, said.message)


def rejoin(lines: Sequence[str], grammar: Grammar) -> str | None:
    """Return the original line of lines that were wrapped; None if they are not one line."""
    origin, text = _one_of([encode(line) for line in lines], grammar) or (None, None)
    return prefix.join_line(origin.head, text.level, decode(text.message)) if origin and text else None


def _one_of(lines: Sequence[bytes], grammar: Grammar) -> tuple[Origin, Text] | None:
    """Return the statement of lines that are one line."""
    readings = list(excerpts.Excerpt(grammar).readings(lines))
    if len(readings) != 1 or readings[0].pieces != len(lines):
        return None
    statements = readings[0].messages
    return statements[0] if len(statements) == 1 and statements[0][1].parsed else None


def _direct(line: bytes, grammar: Grammar) -> Meaning | None:
    """Return the meaning of an unmodified line, or of a message without its prefix."""
    parts = _split_line(line)
    origin, level, message = None, None, line
    if parts:
        head, rest = parts
        word, _, message = rest.partition(b" ")
        origin, level = prefix.parse(head) if head else None, word.decode("ascii")
    parsed = grammar.parse(message) or excerpts.without_numbers(message, grammar)
    if parsed is None and not parts:
        *_, (plain, _stated) = envelopes.peel_all(line)
        parsed = grammar.parse_bare(plain) or grammar.parse_foreign(line) or grammar.parse_foreign(plain)
    return _meaning(parsed, origin, level, message) if parsed else None


def _find_dependent_meaning(line: bytes, grammar: Grammar) -> Meaning | None:
    """Return the meaning of a line that counts only below a traceback or at the end of a log."""
    among = [*grammar.traced, *grammar.last]
    parsed = next(filter(None, (grammar.parse_foreign(text, among) for text, _ in envelopes.peel_all(line))), None)
    name = str(((parsed and parsed.production.read(parsed.message)) or {}).get("exception") or "")
    kind = getattr(builtins, name, None)
    if isinstance(kind, type):
        is_exception = issubclass(kind, BaseException) and not issubclass(kind, Warning)
    else:
        is_exception = not name or _EXCEPTION.fullmatch(name) is not None  # unlike ``Epoch`` in ``Epoch: 3``
    return _meaning(parsed, None, None, line) if parsed and is_exception else None


def _meaning(parsed: Parsed, origin: Origin | None, level: str | None, message: bytes) -> Meaning:
    production = parsed.production
    fields = []
    for name, value in (production.read(parsed.message) or {}).items():
        shown = _show_value(value)
        if value is None or name.startswith("_") or excerpts.STAND_IN.decode() in shown:  # no part of the event
            continue
        # Some names have another meaning in the output of other programs.
        places = (f"{production.dialect}/{production.name}/", f"{production.dialect}/", "")
        sense = next((sense for place in places if (sense := glossary().get(place + name))), "")
        fields.append((name, shown, sense))
    return Meaning(production, origin, level, decode(message), fields)


def _split_line(line: bytes) -> tuple[bytes, bytes] | None:
    """Return a line as (head, level and message); the head is empty where the line begins with ``NCCL INFO``."""
    rest = prefix.read_unprefixed(line)
    return prefix.split(line) if rest is None else (b"", rest)


def releases(production: Production) -> str:
    """Return the releases that print a message, in words."""
    first, dots, last = production.versions.partition("..")
    whose = "" if production.dialect == "nccl" else f"{production.dialect} "
    if not production.versions:
        return f"{whose}all releases"
    if not dots or first == last:
        return f"{whose}{first} only"
    if not last:
        return f"{whose}{first} and later"
    return f"{whose}{first} to {last}" if first else f"{whose}until {last}"


def subsystems(production: Production) -> str:
    """Return the setting that shows a message, in words."""
    names = production.subsys.split("|")
    return "always shown" if names == ["ALWAYS"] else "NCCL_DEBUG_SUBSYS=" + " or ".join(names)


@cache
def glossary() -> dict[str, str]:
    """Return what field names mean."""
    text = (Path(__file__).parent / "glossary.txt").read_text(encoding="utf-8")
    return dict(line.split(": ", 1) for line in text.splitlines() if line and line[0] != "#")


def _show_value(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(
            _show_value(item) if not isinstance(item, tuple) else f"({_show_value(item)})" for item in value
        )
    return escape_controls({True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value))
