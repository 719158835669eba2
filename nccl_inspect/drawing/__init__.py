"""Drawings of communicators, one module for each format.

A module states ``render(views, machines, style)``, which gives the text; its name is the name of the format.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Protocol, cast

from nccl_inspect.picture.view import View
from nccl_inspect.report import Style
from nccl_inspect.topology import Topology
from nccl_inspect.util.discovery import modules


class Format(Protocol):
    """The interface of a format module."""

    DRAWS: bool
    """Whether it draws a picture, where many communicators would overlap."""

    def render(self, views: Sequence[View], machines: Sequence[Topology], style: Style) -> str:
        """The text, which ends with a line end."""


@cache
def names() -> tuple[str, ...]:
    """The names of all formats, found by their files; the default first."""
    return tuple(sorted(modules(__file__), key=lambda name: name != "text"))


def load(name: str) -> Format:
    """The format of that name, loaded when it is used."""
    return cast(Format, import_module(f"{__name__}.{name}"))
