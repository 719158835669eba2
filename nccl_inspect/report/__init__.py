"""Output formats, one module each; renderers see the judged job and nothing else.

A module states ``SUFFIX`` and ``render(job, style)``, which gives the text; its name is the name of the format.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Protocol, cast

from nccl_inspect.model.job import Job


@dataclass(frozen=True, slots=True)
class Style:
    """How a report for people is to look; formats for machines ignore it."""

    width: int = 100
    """Columns of the terminal."""
    color: bool = False
    verbose: bool = False


class Format(Protocol):
    """What a format module has."""

    SUFFIX: str

    def render(self, job: Job, style: Style) -> str:
        """The report as text that ends with a line end."""


_PARTS = ("words", "tables")


@cache
def names() -> tuple[str, ...]:
    """The names of all formats, found by their files; the default first."""
    found = sorted(module.name for module in iter_modules(__path__) if module.name not in _PARTS)
    return tuple(sorted(found, key=lambda name: name != "text"))


def load(name: str) -> Format:
    """The format of that name, loaded when it is used."""
    return cast(Format, import_module(f"{__name__}.{name}"))
