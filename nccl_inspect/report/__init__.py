"""Output formats, one module each; renderers see the judged job and nothing else.

A module defines ``render(job, style)``, which returns the text; its name is the name of the format. ``SUFFIXES`` are
those of its files that differ from this name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from nccl_inspect.util.discovery import Package
from nccl_inspect.util.records import Frozen

if TYPE_CHECKING:
    from nccl_inspect.model.job import Job


class Style(Frozen):
    """The look of a report; formats for programs use the last two fields only."""

    width: int = 100  # columns of the terminal
    color: bool = False
    verbose: bool = False
    tight: int = 0  # how much of a long text is left to `verbose`, from nothing to 3
    indent: bool = False  # whether to indent a document for programs
    only: frozenset[str] = frozenset()  # the fields to write to such a document; all if empty


class Format(Protocol):
    """The interface of a format module."""

    def render(self, job: Job, style: Style) -> str:
        """Return the report as text that ends with a line end."""


_SHARED = ("brief", "digest", "head", "jobs", "picture", "tables", "words")
_MODULES: Package[Format] = Package(__name__, __file__, *_SHARED, first="text")
names, load = _MODULES.names, _MODULES.load


def render_lines(name: str, job: Job, style: Style) -> Iterable[str]:
    """Return a report in the named format, in parts that end where lines end; large reports are streamed."""
    form = load(name)
    in_parts: Callable[[Job, Style], Iterable[str]] | None = getattr(form, "pieces", None)
    return in_parts(job, style) if in_parts else form.render(job, style).removesuffix("\n").split("\n")
