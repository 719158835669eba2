"""Reports of the traffic of a job, one module for each format.

A module states ``render(traffic, by, style)``, which gives the text; its name is the name of the format.
"""

from __future__ import annotations

from typing import Protocol

from nccl_inspect.report import Style
from nccl_inspect.traffic.flows import Traffic
from nccl_inspect.util.discovery import Package


class Format(Protocol):
    """The interface of a format module."""

    def render(self, traffic: Traffic, by: str, style: Style) -> str:
        """The text, which ends with a line end; ``by`` says what a table with one kind of rows has: see ``BY``."""


BY = ("operation", "path")
_MODULES: Package[Format] = Package(__name__, __file__, "flows", "algorithms", first="text")
names, load = _MODULES.names, _MODULES.load
