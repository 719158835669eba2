"""Formats of a comparison, one module each with ``render(difference, style)``."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Protocol, cast

from nccl_inspect.differences import Difference
from nccl_inspect.report import Style
from nccl_inspect.util.discovery import modules


class Format(Protocol):
    """The interface of a format module."""

    def render(self, difference: Difference, style: Style) -> str:
        """The report as text that ends with a line end."""


_PARTS = ("words",)


@cache
def names() -> tuple[str, ...]:
    """The names of all formats, found by their files; the default first."""
    return tuple(sorted(modules(__file__, *_PARTS), key=lambda name: name != "text"))


def load(name: str) -> Format:
    """The format of that name, loaded when it is used."""
    return cast(Format, import_module(f"{__name__}.{name}"))
