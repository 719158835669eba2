"""Words that tell nothing about whose log it is: they stay, in paths, in labels and in what accounts are called."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from nccl_inspect.grammar import engine

_HEAD = re.compile(r"^# ([a-z-]+): .*$", re.MULTILINE)
_, *_TEXTS = _HEAD.split((Path(__file__).parent / "words.txt").read_text(encoding="utf-8"))
LISTS = {name: frozenset(text.split()) for name, text in zip(_TEXTS[::2], _TEXTS[1::2], strict=True)}
"""The lists of ``words.txt``, which says what each of them is, by their names."""
WORDS = LISTS["words"]
ACCOUNTS = LISTS["accounts"]
LIBRARIES = LISTS["libraries"]
PUBLIC_HOSTS = LISTS["public-hosts"]
PUBLIC_DOMAINS = LISTS["public-domains"]
KEY_DOMAINS = LISTS["key-domains"]
KEPT_ROOTS = ("/proc/", "/sys/", "/dev/", "/opt/amazon/", "/opt/hpcx/", "/opt/rocm/")
"""Folders in which all is what a program brings along."""
PUBLIC_PLACES = re.compile(
    r"(?:www\.)?github\.com/(?:NVIDIA|aws|pytorch|ROCm|Mellanox|ofiwg|openucx|google)(?:/|$)", re.I
)
"""Repositories of the programs that print to these logs."""


@cache
def message_words() -> frozenset[str]:
    """The words of all messages that are known, in small letters."""
    return frozenset(engine.shipped().words())


def is_public(host: str) -> bool:
    """Whether a host, or the domain of a key, is that of a program or of its documentation."""
    return host in PUBLIC_HOSTS or ".".join(host.rsplit(".", 2)[-2:]) in KEY_DOMAINS


def is_rare(name: str) -> bool:
    """Whether a short name never occurs as a word of a message, so that it is a name wherever it occurs."""
    return (
        len(name) > 2
        and name.isalpha()
        and not is_plain(name)
        and name.lower() not in message_words()
        and name.lower() not in LISTS["common"]
    )


_PIECE = re.compile(r"[A-Za-z]+|%[A-Za-z]|\d+")
_NUMBERED = re.compile(r"(?<![A-Za-z%])[A-Za-z]\d{3}(?!\d*[a-z])", re.IGNORECASE)
"""``p123``: a project rather than a version."""
_LIBRARY = re.compile(r"lib[\w+-]+\.(?:so|a)[\d.]*|[\w-]+\.(?:cc|cpp|cu|cuh|h|hpp|c)")


def is_plain(word: str) -> bool:
    """Whether a name is made of such words and numbers only: ``python3.11``, ``nccl.%h.%p.log``, ``trainer-0``."""
    if _LIBRARY.fullmatch(word):
        return True
    if _NUMBERED.search(word):
        return False
    return all(piece.isdigit() or piece[0] == "%" or piece.lower() in WORDS for piece in _PIECE.findall(word))
