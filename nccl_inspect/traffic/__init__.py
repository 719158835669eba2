"""Reports of the traffic of a job, one module for each format.

A module states ``render(traffic, by, style)``, which gives the text; its name is the name of the format.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Protocol, cast

from nccl_inspect.report import Style
from nccl_inspect.traffic.flows import Traffic
from nccl_inspect.util.discovery import modules


class Format(Protocol):
    """The interface of a format module."""

    def render(self, traffic: Traffic, by: str, style: Style) -> str:
        """The text, which ends with a line end; ``by`` says what a table with one kind of rows has: see ``BY``."""


BY = ("operation", "path")
_PARTS = ("flows", "algorithms")


@cache
def names() -> tuple[str, ...]:
    """The names of all formats, found by their files; the default first."""
    return tuple(sorted(modules(__file__, *_PARTS), key=lambda name: name != "text"))


def load(name: str) -> Format:
    """The format of that name, loaded when it is used."""
    return cast(Format, import_module(f"{__name__}.{name}"))
