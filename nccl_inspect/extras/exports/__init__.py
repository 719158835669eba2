"""The grammar for other programs, one module for each format with ``FILE``, ``USE`` and ``export(productions)``.

What a format cannot say is written down in its module and in docs/howto/editors.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nccl_inspect.grammar.production import Production
from nccl_inspect.util.discovery import Package


class Format(Protocol):
    """The interface of a format module."""

    FILE: str  # the name of the file in a folder
    USE: str  # the next command, with `{out}` where the path of the output stands

    def export(self, productions: Sequence[Production]) -> str:
        """Return the text of the file, which ends with a line end."""


_MODULES: Package[Format] = Package(__name__, __file__, "patterns")
names, load = _MODULES.names, _MODULES.load
