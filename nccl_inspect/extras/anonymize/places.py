"""Finds names where their meaning is known: behind keys and options, in messages of programs, in paths and addresses.

``places.txt`` has the places, as patterns whose groups say what they find.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache

from nccl_inspect.extras.anonymize.names import (
    KEPT_ROOTS,
    LIBRARIES,
    LISTS,
    PUBLIC_DOMAINS,
    PUBLIC_HOSTS,
    PUBLIC_PLACES,
    split_hosts,
)
from nccl_inspect.util.secrets import find_secrets, list_hinted
from nccl_inspect.util.text import decode, read_parts

_USERS, _HOSTS, _SUBJECTS, _OF_PROGRAMS = (LISTS[f"keys-of-{what}"] for what in ("users", "hosts", "names", "programs"))
_INNER = ("internal", "local", "corp", "lan", "intra")
_WORD = re.compile(r"[A-Za-z0-9_][\w.@-]*")
_PART_OF_KEY = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_OPENS = re.compile(r"(?:[|>][-+\d]*|-----)\s*$")  # the last of a line before a secret of many lines, in YAML or PEM
_LINE_END = re.compile(r"\n|\\n")
_NEAR, _KEY_LINES = 2, 60
"""Lines from the name of a secret to its end, and from the first to the last line of a private key."""
_FOLDER = re.compile(r"(?=(?:[-_]*[A-Za-z]){5})[A-Za-z_-]+")


@cache
def _load_places() -> dict[str, tuple[list[bytes], re.Pattern[bytes]]]:
    places = {}
    for name, text in read_parts(__file__, "places.txt").items():
        head, _, rest = text.partition("\n")
        signs, source = (head.split()[1:], rest) if head.startswith("if ") else ([""], text)
        places[name] = [sign.encode() for sign in signs], re.compile(source.encode(), re.VERBOSE | re.MULTILINE)
    return places


class Learned:
    """Names by what they are of: ``user``, ``host``, ``account``, ``secret``, or anything (``label``).

    A ``likely-host`` is a host unless its name is made of common words only, an ``expression`` stands for hosts if one
    of these is known, and from the name of an ``object`` others are made.
    """

    def __init__(self) -> None:
        self.names: defaultdict[str, set[str]] = defaultdict(set)
        self._last_lines: list[str] = []

    def learn(self, text: bytes) -> None:
        """Take names out of a part of a log."""
        self._learn_secrets(text)
        lowered = text.lower()
        for place, (signs, _) in _load_places().items():
            if not place.startswith("of-") and any(sign in lowered for sign in signs):
                self._learn_at(place, text)

    def _learn_secrets(self, text: bytes) -> None:
        """Learn secrets, also those in the line before or behind that of their name, or of many lines."""
        lines = [*self._last_lines, *decode(text).splitlines()]
        self._last_lines = lines[-_NEAR:]
        near = [False] * (len(lines) + _KEY_LINES)
        for at in list_hinted(lines):
            span = range(max(at - 1, 0), at + (_KEY_LINES if _OPENS.search(lines[at]) else _NEAR))
            near[span.start : span.stop] = [True] * len(span)
        if any(near):
            wanted = (line if is_near else "" for line, is_near in zip(lines, near, strict=False))
            for found in find_secrets("\n".join(wanted)):
                self.names["secret"].update(part.strip() for part in _LINE_END.split(found))

    def _learn_at(self, place: str, text: bytes) -> None:
        _, pattern = _load_places()[place]
        kinds = list(pattern.groupindex)
        for values in set(pattern.findall(text)):
            found = dict(zip(kinds, map(decode, values if len(kinds) > 1 else [values]), strict=True))
            for kind, value in found.items():
                if value:
                    self._learn_found(kind.rstrip("123"), value, found)

    def _learn_found(self, kind: str, value: str, beside: dict[str, str]) -> None:
        match kind:
            case "value":
                for kind in kinds_of_value(beside["key"]):
                    self.names[kind].update(words(value))
            case "label":
                self.names["label"].update(words(value))
            case "hosts":
                self.names["likely-host"].update(split_hosts(value))
            case "command" | "launch":
                self._learn_at(f"of-{kind}", value.encode())
            case "domain":
                # Whose it is tells the name before its last part: acme of gpu-1.cluster.acme.internal.
                parts = value.split(".")
                if parts[-1] in _INNER and any(map(str.isdigit, parts[0])):
                    self.names["likely-host"].add(parts[0])
                is_public = value.lower() in PUBLIC_HOSTS or ".".join(parts[-2:]).lower() in PUBLIC_DOMAINS
                if not is_public and len(parts[-2]) > 3:
                    self.names["label"].add(parts[-2])
            case "target":
                if beside["site"] not in PUBLIC_HOSTS and not PUBLIC_PLACES.match(f"{beside['site']}/{value}"):
                    self._learn_path(f"/{value}/")
            case "path":
                self._learn_path(value)
            case "package":
                self._learn_package(value)
            case "user" | "account" | "expression":
                self.names[kind].add(value)

    def _learn_path(self, path: str) -> None:
        if path.startswith(KEPT_ROOTS):
            return
        parts = path.split("/")
        packages = [at for at, part in enumerate(parts) if part in ("site-packages", "dist-packages")]
        if packages:
            self._learn_package("".join(parts[packages[-1] + 1 : packages[-1] + 2]))
            parts = parts[: packages[-1]]
        folders = (part.removesuffix(".git") for part in parts[:-1])
        self.names["label"].update(filter(_FOLDER.fullmatch, folders))

    def _learn_package(self, name: str) -> None:
        if name not in LIBRARIES and len(name) > 3 and "." not in name:
            self.names["label"].add(name)


@cache
def kinds_of_value(key: str) -> tuple[str, ...]:
    """Return what a key says that its value is: a user, a host and a label, only a label, or nothing of that."""
    parts = [part.lower() for part in _PART_OF_KEY.findall(key)]
    if not parts or (parts[0] in _OF_PROGRAMS and len(parts) > 1):
        return ()
    if "-".join(parts[-2:]) in _SUBJECTS:
        return ("label",)
    if len(parts) > 1 and parts[-1] in ("name", "id"):
        parts.pop()
    if parts[-1] in _USERS:
        return ("user",)
    if parts[-1] in _HOSTS:
        return "likely-host", "label"
    is_label = parts[0] == "kube" or not _SUBJECTS.isdisjoint((parts[-1], "-".join(parts[-2:])))
    return ("label",) if is_label else ()


def words(label: str) -> list[str]:
    """Return the names in a label: ``pod/llama-0/trainer``, ``ml › llama-0``."""
    parts = re.split(r"[\s/,=():›]+", label)
    return [word for word in parts if len(word) > 1 and _WORD.fullmatch(word) and not word.isdigit()]
