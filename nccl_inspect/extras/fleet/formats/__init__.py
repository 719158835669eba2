"""Formats of a report on a store, one module each with ``render(document, style)``."""

from nccl_inspect.util.discovery import package

names, load = package(__name__, __file__, first="text")
