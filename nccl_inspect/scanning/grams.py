"""Lines that hold one of many texts, whatever the others look like. This module needs numpy.

Any seven bytes in a row hold four that begin at a multiple of four: so only every fourth place of a
block is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_WIDTH = 4  # bytes that are compared at once
_WINDOW = 2 * _WIDTH - 1
_MIX, _FOLD = np.uint32(2654435761), np.uint32(16)
_KINDS = 1 << 16  # numbers that stand for four bytes
_PART = 1 << 18  # bytes of a block that are looked at together: what is computed of them stays in the cache
_WORTH = 1 << 13  # bytes that are searched for a text in the time that it takes to look at a line for nothing


class Grams:
    """Finds texts by four of their bytes."""

    def __init__(self, texts: Iterable[bytes], sample: bytes) -> None:
        frequent = np.bincount(_hash_words(_words(sample)), minlength=_KINDS)
        texts = sorted(texts)
        self._plain = [text for text in texts if len(text) < _WINDOW]
        """Texts that are searched for as they are: too short, or all of their bytes are common."""
        grams = [np.zeros(0, np.uint32)]
        for text in texts:
            if len(text) < _WINDOW:
                continue
            words = _words(text)
            costs = np.convolve(frequent[_hash_words(words)], np.ones(_WIDTH, np.int64), "valid")
            begin = int(costs.argmin())
            if costs[begin] * _WORTH > len(sample):
                self._plain.append(text)
            else:
                grams.append(words[begin : begin + _WIDTH])
        self._grams: NDArray[np.uint32] = np.unique(np.concatenate(grams))
        self._may_be = np.zeros(_KINDS, bool)
        self._may_be[_hash_words(self._grams)] = True

    def lines(self, text: bytes) -> tuple[int, list[tuple[int, bytes]]]:
        """Return how many lines a block has, and those that may hold one of the texts, each with its place."""
        letters = np.frombuffer(text, np.uint8)
        ends, plain = [], list[int]()
        for name in self._plain:  # once in each line; searching from the end takes a third of the time
            at = len(text)
            while (at := text.rfind(name, 0, at)) >= 0:
                plain.append(at)
                at = text.rfind(b"\n", 0, at) + 1
        places = [np.array(plain, np.int64)]
        for begin in range(0, len(text), _PART):
            part = letters[begin : begin + _PART]
            ends.append(np.flatnonzero(part == ord("\n")) + begin)
            words = part[: len(part) // _WIDTH * _WIDTH].view(np.uint32)
            found = np.flatnonzero(self._may_be[_hash_words(words)])
            grams = np.searchsorted(self._grams, words[found]).clip(max=len(self._grams) - 1)
            places.append(found[self._grams[grams] == words[found]] * _WIDTH + begin)
        line_ends = np.concatenate([*ends, [len(text)]])
        rows = np.unique(np.searchsorted(line_ends, np.concatenate(places)))
        begins = np.where(rows > 0, line_ends[rows - 1] + 1, 0)
        spans = zip(rows.tolist(), begins.tolist(), line_ends[rows].tolist(), strict=True)
        return len(line_ends), [(row, text[begin:end]) for row, begin, end in spans]


def _words(text: bytes) -> NDArray[np.uint32]:
    """Return the four bytes from each place on."""
    return np.ascontiguousarray(np.ndarray((max(len(text) - _WIDTH + 1, 0),), np.uint32, text, strides=(1,)))


def _hash_words(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return numbers that stand for words."""
    return (words * _MIX) >> _FOLD
