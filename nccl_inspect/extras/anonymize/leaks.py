"""What is left of names in files that were written: a name that was replaced somewhere and still stands elsewhere.

Names that may be words of any message stay where nothing says that they are names, and are reported here; so are
secrets and addresses of which only one occurrence was replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from nccl_inspect.extras.anonymize import vocabulary
from nccl_inspect.extras.anonymize.names import Names
from nccl_inspect.extras.anonymize.remains import PART, Starts, held_by
from nccl_inspect.util.text import decode

_WORD = re.compile(rb"[A-Za-z0-9]+(?:[._@:/+-]+[A-Za-z0-9]+)*")
_CATEGORIES = ("host", "user", "name", "secret", "email", "site", "uuid", "mac", "ipv4", "ipv6", "cloud")
_MIN = 3
_MIN_SECRET = 6
"""Minimum length of a secret: a shorter one occurs in many words."""
_MAX_NAMES = 20


class Leaks:
    """Looks for names.

    Args:
        names: the table, when all is written.
    """

    def __init__(self, names: Names) -> None:
        given = {new for entries in names.table.values() for new in entries.values()}
        self._starts: Starts = {}
        for category in _CATEGORIES:
            for name, new in names.table[category].items():
                if name not in given and _tells(category, name) and (first := PART.search(name)):
                    self._starts.setdefault(first[0], []).append((name[first.start() :], new))
        self._harmless: set[bytes] = set()

    def within(self, blocks: Iterable[list[bytes]]) -> list[str]:
        """Names that occur in a file, up to a limit."""
        leaked: dict[str, None] = {}
        for block in blocks:
            words = set(_WORD.findall(b"".join(block))) - self._harmless
            for word in words:
                held = [name for name, _ in held_by(decode(word), self._starts)]
                leaked.update(dict.fromkeys(held))
                if not held and len(self._harmless) < 200_000:
                    self._harmless.add(word)
        return sorted(islice(leaked, _MAX_NAMES))


def _tells(category: str, name: str) -> bool:
    if category == "secret":
        return len(name) >= _MIN_SECRET
    return len(name) >= _MIN and not vocabulary.is_plain(name) if category in ("host", "user", "name") else True
