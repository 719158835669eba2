"""Output formats, one module each; renderers see the judged job and nothing else.

A module defines ``render(job, style)``, which returns the text with a line end behind it; its name is the name of the
format. ``SUFFIXES`` are those of its files that differ from this name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from nccl_inspect.util.discovery import package
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


class Format(NamedTuple):
    """A format of an extra, with the suffixes of its files that differ from its name."""

    render: Callable[..., str]
    SUFFIXES: tuple[str, ...] = ()


_SHARED = ("brief", "digest", "jobs", "picture", "tables", "words")
names, load = package(__name__, __file__, *_SHARED, first="text")


def render_lines(name: str, job: Job, style: Style) -> Iterable[str]:
    """Return a report in the named format, in parts that end where lines end; large reports are streamed."""
    form = load(name)
    parts: Iterable[str] = form.pieces(job, style) if hasattr(form, "pieces") else ()
    return parts or str(form.render(job, style)).removesuffix("\n").split("\n")
