"""Formats of a report on a store, one module each with ``render(document, style)``."""

from typing import Any

from nccl_inspect.util.discovery import Package

_MODULES: Package[Any] = Package(__name__, __file__, first="text")
names, load = _MODULES.names, _MODULES.load
