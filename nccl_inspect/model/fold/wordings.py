"""Bounds how many different statements of all processes are kept: where no line repeats, a log has millions."""

from __future__ import annotations

from nccl_inspect.grammar.engine import Parsed
from nccl_inspect.model.fold.note import Stated, Wording

MAX_WORDINGS = 1 << 15
"""Different statements of a log, on top of those that belong to its processes."""
OF_PROCESS = 128
"""Statements of each process that are its own: addresses, bus ids, durations."""
_SIZE = 4096
"""Bytes of a message that count like a further statement."""


class Wordings:
    """Holds what was stated so far; of more than can be kept, one statement stands for all of its production."""

    def __init__(self) -> None:
        self._kept: set[Wording] = set()
        self._of_kind: dict[tuple[str, str], Stated] = {}
        """What stands for others, by level and production."""
        self._size = 0
        self._most = 0
        """The most by which statements were ahead of the processes that had begun."""

    def kept(self, wording: Wording, parsed: Parsed | None, processes: int) -> Stated:
        """The statement to be kept for one: itself, or the one that stands for it.

        Args:
            wording: of the statement.
            parsed: what the grammar makes of it.
            processes: that have begun.
        """
        if wording in self._kept:
            return wording, parsed
        size = self._size + _size(wording)
        ahead = size - OF_PROCESS * processes
        if ahead > MAX_WORDINGS:
            kind = wording[0], parsed.production.name if parsed else "unrecognised"
            return self._of_kind.setdefault(kind, (wording, parsed))
        self._kept.add(wording)
        self._size, self._most = size, max(self._most, ahead)
        return wording, parsed

    def has_room(self, later: Wordings, processes: int, common: int) -> bool:
        """Whether all of what was stated later is kept here, too, wherever the border between both lies.

        Args:
            later: what was stated later.
            processes: that have begun here.
            common: those of them that print later, too.
        """
        ahead = self._size - OF_PROCESS * (processes - common)
        return not self._of_kind and not later._of_kind and ahead + later._most <= MAX_WORDINGS

    def merge(self, later: Wordings, processes: int) -> None:
        """Take in what was stated later."""
        self._size += sum(map(_size, later._kept - self._kept))
        self._kept |= later._kept
        self._most = max(self._most, self._size - OF_PROCESS * processes)
        for kind, statement in later._of_kind.items():
            self._of_kind.setdefault(kind, statement)


def _size(wording: Wording) -> int:
    return 1 + len(wording[1]) // _SIZE
