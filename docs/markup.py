"""Markdown that the generated pages share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

NOTE = "<!-- Written by docs/generate.py; change the code that it describes. -->"


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield a table, nothing when it has no rows."""
    if rows:
        yield f"| {' | '.join(head)} |\n|{'---|' * len(head)}"
        yield from (f"| {' | '.join(map(_cell, row))} |" for row in rows)


def _cell(text: str) -> str:
    return escape_markdown(" ".join(text.replace("``", "`").split())).replace("|", "\\|")


def escape_markdown(text: str) -> str:
    """Return text in which Markdown sees no markup, except back quotes: what stands in them is left alone."""
    parts = text.split("`")
    parts[::2] = [part.replace("<", "&lt;").replace("*", "\\*") for part in parts[::2]]
    return "`".join(parts)
