"""What a checked policy is written as, one module for each format with ``render(checked, strict, style)``."""

from __future__ import annotations

from typing import Protocol

from nccl_inspect.extras.gate.policy import Checked
from nccl_inspect.report import Style
from nccl_inspect.util.discovery import Package


class Format(Protocol):
    """Holds what a format module has."""

    def render(self, checked: Checked, strict: bool, style: Style) -> str:
        """The report as text that ends with a line end."""


_MODULES: Package[Format] = Package(__name__, __file__, "words", first="text")
names, load = _MODULES.names, _MODULES.load
