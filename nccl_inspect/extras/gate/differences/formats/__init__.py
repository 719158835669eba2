"""Formats of a comparison, one module each with ``render(difference, style)``."""

from __future__ import annotations

from typing import Protocol

from nccl_inspect.extras.gate.differences import Difference
from nccl_inspect.report import Style
from nccl_inspect.util.discovery import Package


class Format(Protocol):
    """The interface of a format module."""

    def render(self, difference: Difference, style: Style) -> str:
        """The report as text that ends with a line end."""


_MODULES: Package[Format] = Package(__name__, __file__, "words", first="text")
names, load = _MODULES.names, _MODULES.load
