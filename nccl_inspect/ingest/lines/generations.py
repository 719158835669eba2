"""What was seen before, in bounded memory."""

from __future__ import annotations

from typing import Generic, TypeVar

Seen = TypeVar("Seen")


class Memory(Generic[Seen]):
    """Bytes that were seen, with what they mean: what comes again and again stays, what does not is forgotten.

    There are two generations. When the younger one is full the older one is given up and the younger becomes the older;
    what is recalled from the older one is young again.

    Args:
        entries: of a generation at most.
        size: bytes of all that was seen in a generation, at most.
    """

    def __init__(self, entries: int, size: int) -> None:
        self.young: dict[bytes, Seen] = {}
        """To look up what was seen lately; what is not there may be recalled."""
        self._old: dict[bytes, Seen] = {}
        self._entries = entries
        self._most = size
        self._taken = 0

    @property
    def size(self) -> int:
        """Bytes of all that is remembered by."""
        return sum(map(len, self.young)) + sum(map(len, self._old))

    def recall(self, seen: bytes) -> Seen | None:
        """Return what the older generation knows; None when it knows nothing."""
        entry = self._old.pop(seen, None)
        if entry is not None:
            self.keep(seen, entry)
        return entry

    def forget(self) -> None:
        """Give up all that is remembered."""
        self.young, self._old, self._taken = {}, {}, 0

    def keep(self, seen: bytes, meaning: Seen) -> None:
        """Remember something."""
        self._taken += len(seen)
        if len(self.young) >= self._entries or self._taken > self._most:
            self._old, self.young = self.young, {}
            self._taken = len(seen)
        self.young[seen] = meaning
