"""The production that a half quoted line, or one of an unknown release, most likely belongs to."""

from __future__ import annotations

import re
from collections import Counter
from difflib import SequenceMatcher
from math import log

from nccl_inspect.grammar.engine import Grammar
from nccl_inspect.grammar.production import Production
from nccl_inspect.scanning import meaning
from nccl_inspect.util.records import Frozen, frozen

_FIELD = re.compile(r"\{[^{}]*\}")
_WORD = re.compile(r"[A-Za-z]{2,}")
_IDLE = frozenset(("the", "is", "it", "was", "are", "my", "there", "this", "that"))
"""Words that make no message."""
_SHARE = 0.7
"""How much of a text must occur in a message, in the same order, to count as the same one."""
_LEAST = 6.5
"""How much that must be: two words that few messages have."""
_CANDIDATES = 40
_OF_SAMPLE = 0.5
"""What a word counts that only samples have: a field may hold any other."""


@frozen
class Near(Frozen):
    """A message that a text resembles."""

    meaning: meaning.Meaning
    """Of that message; without fields, as the text has not all of them."""
    sample: str
    """How such a message looks."""


def nearest(text: str, grammar: Grammar) -> Near | None:
    """The known message that has most of the words of a text; None when none is near.

    Args:
        text: a line, or a part of one.
        grammar: what to look in.
    """
    level, message = meaning.without_prefix(text)
    production = _with_words(message, grammar)
    if production is None:
        return None
    sample = max(
        production.samples, key=lambda candidate: SequenceMatcher(None, candidate, message).ratio(), default=""
    )
    return Near(meaning.Meaning(production, None, level, message, []), sample)


def _with_words(message: str, grammar: Grammar) -> Production | None:
    """The production that has most of the words of a message in their order; rare words count more."""
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
        shared = max((_in_order(words, _words(sample), own) for sample in production.samples), default=0.0)
        return shared, production.dialect == "nccl", -len(texts[production])

    most = sorted(texts, key=lambda one: -sum(weights[word] for word in weights.keys() & texts[one]))
    best = max(most[:_CANDIDATES], key=likeness)
    total = sum(weights[word] for word in words)
    return best if likeness(best)[0] >= max(_SHARE * total, _LEAST) else None


def _in_order(words: list[str], text: list[str], weights: dict[str, float]) -> float:
    """Return what the words count that a text has in the same order."""
    blocks = SequenceMatcher(None, words, text, autojunk=False).get_matching_blocks()
    return sum(weights[word] for block in blocks for word in words[block.a : block.a + block.size])


def _words(text: str) -> list[str]:
    words = (word.lower().removesuffix("s") for word in _WORD.findall(text))
    return [word for word in words if word not in _IDLE]
