"""The grammar for other programs, one module for each format with ``DESCRIPTION``, ``USE`` and ``export(productions)``.

What a format cannot say is written down in its module and in docs/howto/editors.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Protocol, cast

from nccl_inspect.grammar.production import Production
from nccl_inspect.util.discovery import modules

_PARTS = ("events", "heads", "patterns")


class Format(Protocol):
    """What a format module has."""

    DESCRIPTION: str
    """What it is for, in a few words."""
    USE: str
    """The next command, with ``{out}`` where the path of the output stands."""

    def export(self, productions: Sequence[Production]) -> dict[str, str]:
        """The files by their names below a folder, the main one first; each text ends with a line end."""


@cache
def names() -> tuple[str, ...]:
    """The names of all formats, found by their files."""
    return tuple(modules(__file__, *_PARTS))


def load(name: str) -> Format:
    """The format of that name, loaded when it is used."""
    return cast(Format, import_module(f"{__name__}.{name}"))
