"""Formats of a report on a store, one module each with ``render(document, style)``."""

from __future__ import annotations

from typing import Any, Protocol

from nccl_inspect.report import Style
from nccl_inspect.util.discovery import Package


class Format(Protocol):
    """The interface of a format module."""

    def render(self, document: dict[str, Any], style: Style) -> str:
        """The report as text that ends with a line end."""


_MODULES: Package[Format] = Package(__name__, __file__, first="text")
names, load = _MODULES.names, _MODULES.load
