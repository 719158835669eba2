"""Names of files without names: what is known is replaced, what tells nothing stays, the rest is numbered."""

from __future__ import annotations

import re

from nccl_inspect.extras.anonymize import vocabulary
from nccl_inspect.extras.anonymize.text import Scrubber

_PLAIN = vocabulary.LISTS["gathered"]
_PARTS = re.compile(r"([._-]+)")
_ADDRESS = re.compile(r"((?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])|(?<![A-Za-z0-9])ip(?:-\d{1,3}){4}(?!\d))")
_MAX_PARTS = 60


class FileNames:
    """Replaces the names of files."""

    def __init__(self, scrubber: Scrubber) -> None:
        self._scrubber = scrubber

    def new(self, name: str) -> str:
        """The name of a file within a folder."""
        *above, last = name.split("/")
        stem, dot, suffix = last.rpartition(".")
        if not stem or not suffix.isalnum() or suffix.isdigit() or self._scrubber.known(last):
            stem, dot, suffix = last, "", ""
        parts = [self._part(part, "directory") for part in above]
        return "/".join([*parts, self._part(stem, "file") + dot + suffix])

    def _part(self, part: str, category: str) -> str:
        if replacement := self._scrubber.known(part):
            return replacement
        pieces = _ADDRESS.split(part)
        return "".join(
            self._scrubber.host(piece) if place % 2 else self._words(piece, category)
            for place, piece in enumerate(pieces)
        )

    def _words(self, text: str, category: str) -> str:
        """Words that are joined by dots and the like; those next to each other that may tell something become one."""
        parts = _PARTS.split(text)
        if len(parts) > _MAX_PARTS:
            return self._scrubber.names.get(category, text)
        out, hidden, at = "", "", 0
        for start in range(0, len(parts), 2):
            if start < at:
                continue
            joined, at = self._longest(parts, start)
            between = parts[start - 1] if start else ""
            if joined is None and not _is_plain(parts[start]):
                hidden += (between if hidden else "") + parts[start]
                out += between if hidden == parts[start] else ""
                continue
            out += (self._scrubber.names.get(category, hidden) if hidden else "") + between + (joined or parts[start])
            hidden = ""
        return out + (self._scrubber.names.get(category, hidden) if hidden else "")

    def _longest(self, parts: list[str], start: int) -> tuple[str | None, int]:
        """Return what stands for the longest known name that begins here, and where what is behind it begins."""
        for end in range(len(parts), start, -2):
            if replacement := self._scrubber.known("".join(parts[start:end])):
                return replacement, end + 1
        return None, start + 2


def _is_plain(word: str) -> bool:
    return word.lower() in _PLAIN or vocabulary.is_plain(word)
