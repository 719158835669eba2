"""Output formats, one module each; renderers see the judged job and nothing else.

A module defines ``render(job, style)``, which returns the text with a line end behind it; its name is the name of the
format. ``SUFFIXES`` are those of its files that differ from this name; ``pieces`` yields a large text line by line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nccl_inspect.util.discovery import package
from nccl_inspect.util.records import Frozen


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
