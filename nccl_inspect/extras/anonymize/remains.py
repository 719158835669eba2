"""A last pass over the output: known names that are still there are replaced, whatever surrounds them.

The scrubber (:mod:`~nccl_inspect.extras.anonymize.text`) goes by the shape of what is around a name, and leaves what
every system has. This goes by the names alone.
"""

from __future__ import annotations

import re

from nccl_inspect.extras.anonymize import vocabulary
from nccl_inspect.extras.anonymize.names import Names
from nccl_inspect.extras.anonymize.text import is_distinct
from nccl_inspect.util.text import decode, encode

Starts = dict[str, list[tuple[str, str]]]
"""By their first parts, names with what stands for them."""
_WORD = re.compile(rb"[A-Za-z0-9]+(?:[._@-]+[A-Za-z0-9]+)*")
PART = re.compile(r"[A-Za-z0-9]+")
_FEW = 50
_LONG = 6
_MAX_REMEMBERED = 200_000


class Remains:
    """Replaces what is left of names.

    Args:
        names: the table; names of one word without a digit may be words of a message, and stay.
    """

    def __init__(self, names: Names) -> None:
        given = {new for entries in names.table.values() for new in entries.values()}
        self._starts: Starts = {}
        for category in ("name", "user", "host"):
            for name, new in names.table[category].items():
                if name not in given and _is_telling(name) and (first := PART.search(name)):
                    self._starts.setdefault(first[0], []).append((name, new))
        every = [encode(name) for pairs in self._starts.values() for name, _ in pairs]
        self._few = every if len(every) <= _FEW else None
        """All of them where there are so few that a look for each takes less time than one at every word."""
        self._secrets = {encode(name): encode(new) for name, new in names.table["secret"].items() if _is_long(name)}
        either = b"|".join(map(re.escape, sorted(self._secrets, key=len, reverse=True)))
        self._secret = re.compile(either) if either else None
        """Whatever stands around them: a password may begin and end with anything."""
        self._harmless: set[bytes] = set()
        """Words that hold no name."""

    def replaced(self, text: bytes) -> bytes:
        """The text without any of the names."""
        if self._secret:
            text = self._secret.sub(lambda match: self._secrets[match[0]], text)
        if self._few is not None and not any(name in text for name in self._few):
            return text
        words = set(_WORD.findall(text)) - self._harmless
        left = {name: new for word in words for name, new in held_by(decode(word), self._starts)}
        for name in sorted(left, key=len, reverse=True):
            whole = rb"(?<![A-Za-z0-9])" + re.escape(encode(name)) + rb"(?![A-Za-z0-9])"
            text = re.sub(whole, encode(left[name]), text)
        if len(self._harmless) > _MAX_REMEMBERED:
            self._harmless.clear()
        if not left:
            self._harmless |= words
        return text


def held_by(word: str, starts: Starts) -> list[tuple[str, str]]:
    """The names that a word holds, with what stands for them."""
    return [
        (name, new)
        for part in PART.finditer(word)
        for name, new in starts.get(part[0], ())
        if word.startswith(name, part.start()) and not word[part.start() + len(name) :][:1].isalnum()
    ]


def _is_long(secret: str) -> bool:
    """Whether a secret cannot be part of an ordinary word."""
    return len(secret) >= _LONG and not vocabulary.is_plain(secret)


def _is_telling(name: str) -> bool:
    """Whether a name is distinct from the words of ordinary messages."""
    return len(name) >= 4 and is_distinct(name) and ("-" in name or any(char.isdigit() for char in name))
