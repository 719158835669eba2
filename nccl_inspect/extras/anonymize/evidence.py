"""Files of evidence without names, as files of the same form: pickles, JSON, YAML and what tools print."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

from nccl_inspect.artifacts import Kind, machine
from nccl_inspect.artifacts.plain_pickle import loads
from nccl_inspect.extras.anonymize.anonymizer import Anonymizer
from nccl_inspect.extras.anonymize.collected import Layout
from nccl_inspect.extras.anonymize.fields import Fields, Found
from nccl_inspect.extras.anonymize.scalars import Change, Place, of_json, of_yaml
from nccl_inspect.util.text import decode, encode

_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_PROTOCOL = 2
"""The one that PyTorch writes: lengths in four bytes, so that no letter precedes a text."""
_MAX_FLAT = 4
"""Entries of a mapping that is compared by what is in it."""
_MAX_TEXTS = 20_000
_PER_BLOCK = 2_000
"""Lines that are looked over for names at once."""

Path = tuple[str, ...]


class Evidence:
    """Learns names from files of evidence, and writes these without them."""

    def __init__(self, anonymizer: Anonymizer) -> None:
        self._anonymizer = anonymizer
        self._fields: dict[Kind, Fields] = {}
        self._keyed: dict[Kind, re.Pattern[str] | None] = {}

    def learn(self, kind: Kind, name: str, data: bytes) -> None:
        """Take the names out of a file.

        Raises:
            ValueError: it is damaged, so that it cannot be written either.
            NotOfKindError: it is a log.
        """
        gathered = Found()
        fields = self._of(kind)

        def change(place: Place, text: str) -> str:
            fields.learn(place, text, gathered)
            if len(gathered.texts) > _MAX_TEXTS:
                self._learn_texts(gathered)
            return text

        if hasattr(kind, "START"):
            gathered.by_meaning["host"].update(machine.hosts(data, kind.START))
        for text in self._pieces(kind, data, change, lambda text: self._learn_lines(kind, text, gathered)):
            del text
        if isinstance(kind, Layout):
            text = decode(data)
            for start, end, meaning in kind.spans(text):
                fields.learn_as(meaning, text[start:end], gathered)
        self._learn_texts(gathered)
        for meaning, names in gathered.by_meaning.items():
            self._anonymizer.learn_names(meaning, names)

    def blocks(self, kind: Kind, data: bytes) -> Iterator[bytes]:
        """The file with everything replaced.

        Raises:
            ValueError: it is damaged.
        """
        fields, remains = self._of(kind), self._anonymizer.without

        def change(place: Place, text: str) -> str:
            return remains(fields.changed(place, text))

        for text in self._pieces(kind, data, change, lambda text: self._changed_lines(kind, text)):
            yield text if isinstance(text, bytes) else encode(text)

    def _of(self, kind: Kind) -> Fields:
        if kind not in self._fields:
            self._fields[kind] = Fields(getattr(kind, "NAMES", {}), self._anonymizer.scrubber)
        return self._fields[kind]

    def _pieces(
        self, kind: Kind, data: bytes, change: Change, other: Callable[[str], str]
    ) -> Iterator[bytes] | Iterator[str]:
        """The file with changed texts, by its form."""
        if _PICKLE.match(data):
            return iter([pickle.dumps(_Walk(change).of(loads(data), ()), _PROTOCOL)])
        text = decode(data.removeprefix(b"\xef\xbb\xbf"))
        if text.lstrip()[:1] in ("{", "[") and not hasattr(kind, "START"):
            return of_json(text, change, other)
        if getattr(kind, "FORM", "") == "yaml":
            return of_yaml(data.decode("utf-8-sig", "replace"), change, lambda mark: change(Place(("name",), ""), mark))
        return (other(line) for line in _texts(kind, text))

    def _learn_texts(self, gathered: Found) -> None:
        lines = [*gathered.texts]
        gathered.texts.clear()
        for at in range(0, len(lines), _PER_BLOCK):
            self._anonymizer.learn_text(encode("\n".join(lines[at : at + _PER_BLOCK]) + "\n"))

    # --- text ---------------------------------------------------------------------------------------------------

    def _learn_lines(self, kind: Kind, text: str, gathered: Found) -> str:
        fields, pattern = self._of(kind), self._pattern(kind)
        gathered.texts[text.strip("\r\n")] = None
        for match in pattern.finditer(text) if pattern else ():
            fields.learn(Place((match["key"],), ""), match["value"], gathered)
        if len(gathered.texts) > _MAX_TEXTS:
            self._learn_texts(gathered)
        return text

    def _changed_lines(self, kind: Kind, text: str) -> str:
        if isinstance(kind, Layout):
            return self._changed_layout(kind, text)
        return "".join(self._changed_line(kind)(line[0]) for line in _LINE.finditer(text))

    def _changed_layout(self, kind: Layout, text: str) -> str:
        """A text with the names replaced where they stand, and all else by its shape."""
        fields, scrubber, pieces, at = self._of(kind), self._anonymizer.scrubber, [], 0
        for start, end, meaning in kind.spans(text):
            pieces += [scrubber.text(text[at:start]), fields.of(meaning, text[start:end])]
            at = end
        return self._anonymizer.without("".join([*pieces, scrubber.text(text[at:])]))

    def _changed_line(self, kind: Kind) -> Callable[[str], str]:
        fields, pattern, anonymizer = self._of(kind), self._pattern(kind), self._anonymizer

        def changed(line: str) -> str:
            pieces, at = [], 0
            for match in pattern.finditer(line) if pattern else ():
                start, end = match.span("value")
                pieces += [
                    anonymizer.scrubber.text(line[at:start]),
                    fields.changed(Place((match["key"],), ""), line[start:end]),
                ]
                at = end
            end = len(line.rstrip("\r\n"))
            pieces += [anonymizer.scrubber.text(line[at:end]), line[end:]]
            return anonymizer.without("".join(pieces))

        return changed

    def _pattern(self, kind: Kind) -> re.Pattern[str] | None:
        """Values in text: after ``UserId=`` or ``Board ID : ``, or after a key that ends with a blank."""
        if kind not in self._keyed:
            keys = "|".join(re.escape(key) for key in sorted(getattr(kind, "NAMES", {}), key=len, reverse=True))
            source = rf"""(?<![\w/:])(?P<key>{keys})(?:(?<=[ ])|[ \t]*[:=][ \t]*["']?)(?P<value>[^\s"'<>()]+)"""
            self._keyed[kind] = re.compile(source) if keys else None
        return self._keyed[kind]


def _texts(kind: Kind, text: str) -> Iterator[str]:
    """Return what is looked at on its own.

    Lines, or the whole of a text in which the lines before say what one means.
    """
    return iter([text]) if isinstance(kind, Layout) else (line[0] for line in _LINE.finditer(text))


class _Walk:
    """Copies plain values with other texts; what shares parts shares them in the copy."""

    def __init__(self, change: Change) -> None:
        self._change = change
        self._copies: dict[tuple[int, Path], Any] = {}
        self._texts: dict[tuple[Path, str], str] = {}
        """By the keys above them: calls repeat each other."""
        self._flat: dict[tuple[Path, tuple[Any, ...]], dict[Any, Any]] = {}
        """Copies of small mappings, by what is in them: the frames of the calls are most of a dump."""
        self._keys: dict[tuple[Path, str | int], tuple[Any, Path]] = {}
        """The replacement for a key, and the path of its value."""
        self._originals: list[Any] = []
        """Kept, so that none of them gives its identity to another one."""

    def of(self, value: Any, path: Path, is_element: bool = False) -> Any:
        """A copy.

        Args:
            value: that a pickle holds.
            path: the keys above it; the last ones only.
            is_element: whether it is one of a list.
        """
        if isinstance(value, str):
            known_text = self._texts.get((path, value))
            if known_text is None:
                known_text = self._texts[path, value] = self._change(Place(path, "", is_element=is_element), value)
            return known_text
        if isinstance(value, dict | list | tuple | set | frozenset):
            key = id(value), path
            if key not in self._copies:
                self._originals.append(value)
                self._copy(value, path, key)
            return self._copies[key]
        if isinstance(value, bytes | bytearray):
            return encode(self._change(Place(path, ""), decode(bytes(value))))
        return value

    def _copy(self, value: Any, path: Path, copy_key: tuple[int, Path]) -> None:
        copies = self._copies
        if isinstance(value, dict):
            flat = (path, tuple(value.items())) if len(value) <= _MAX_FLAT else None
            try:
                if flat is not None and flat in self._flat:
                    copies[copy_key] = self._flat[flat]
                    return
            except TypeError:  # it holds what has parts itself
                flat = None
            copies[copy_key] = new = {}
            for key, entry in value.items():
                is_simple = isinstance(key, str | int)
                new_key, inner = self._key(key, path) if is_simple else (self.of(key, path), (*path, "")[-3:])
                new[new_key] = entry if entry is None or isinstance(entry, int | float) else self.of(entry, inner)
            if flat is not None:
                self._flat[flat] = new
        elif isinstance(value, list):
            listed: list[Any] = []
            copies[copy_key] = listed
            listed.extend(self.of(entry, path, is_element=True) for entry in value)
        else:
            copies[copy_key] = type(value)(self.of(entry, path, is_element=True) for entry in value)

    def _key(self, key: str | int, path: Path) -> tuple[Any, Path]:
        entry = self._keys.get((path, key))
        if entry is None:
            new = self._change(Place(path, "", is_key=True), key) if isinstance(key, str) else key
            entry = self._keys[path, key] = new, (*path, str(key))[-3:]
        return entry
