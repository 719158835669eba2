"""Drawings of communicators, one module for each format.

A module states ``render(views, machines, style)``, which gives the text; its name is the name of the format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nccl_inspect.report import Style
from nccl_inspect.report.picture import View
from nccl_inspect.topology import Topology
from nccl_inspect.util.discovery import Package


class Format(Protocol):
    """The interface of a format module."""

    DRAWS: bool
    """Whether it draws a picture, where many communicators would overlap."""

    def render(self, views: Sequence[View], machines: Sequence[Topology], style: Style) -> str:
        """Return the text, which ends with a line end."""


_MODULES: Package[Format] = Package(__name__, __file__, first="text")
names, load = _MODULES.names, _MODULES.load
