"""The reference of the log: a page for each grammar file, written from the grammar itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from markup import escape_markdown, table

from nccl_inspect.grammar import files, notation
from nccl_inspect.grammar.production import Production
from nccl_inspect.scanning import meaning

Family = tuple[str, list[Production]]
"""The text of a grammar file and its productions."""


def pages(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield every page with its lines.

    Args:
        folder: where the pages go: an index, and one folder for each dialect.
    """
    texts = [(file.read_text(encoding="utf-8"), file.name) for file in files.list_files()]
    families = [(text, members) for text, name in texts if (members := files.read(text, name))]
    families.sort(key=lambda family: (family[1][0].dialect != "nccl", family[1][0].dialect, family[1][0].family))
    yield folder / "index.md", list(_index(families))
    for text, members in families:
        first = members[0]
        yield folder / first.dialect / f"{first.family}.md", list(_page(text, members))


def _index(families: list[Family]) -> Iterator[str]:
    count = sum(len(members) for _, members in families)
    yield "# The log, message by message\n"
    yield f"The {count:,} message shapes that are recognised, with what each means: NCCL and its plugins have no other"
    yield "documentation of what they print. A shape is what follows `NCCL INFO ` or `NCCL WARN ` (whole lines of"
    yield "PyTorch, libfabric, nccl-tests and other programs). Versions are the releases that print it, subsystems"
    yield "those of"
    yield "`NCCL_DEBUG_SUBSYS` of which any one shows it; it becomes the event named last."
    for dialect, group in groupby(families, key=lambda family: family[1][0].dialect):
        yield f"\n## {dialect}\n"
        rows = [
            (f"[{members[0].family}]({dialect}/{members[0].family}.md)", str(len(members)), _introduction(text))
            for text, members in group
        ]
        yield from table(("family", "shapes", "what"), rows)
    yield f"\n## Notation\n\n```text\n{inspect.getdoc(notation)}\n```"
    yield "\n## Fields\n"
    yield from table(("field", "meaning"), sorted(meaning.glossary().items()))


def _page(text: str, members: list[Production]) -> Iterator[str]:
    yield f"# {members[0].dialect}: {members[0].family}\n"
    yield escape_markdown(_introduction(text))
    yield "\nThe notation and the meaning of the fields are told in [the index](../index.md)."
    for production in members:
        yield from _production(production)


def _introduction(text: str) -> str:
    """Return the comment at the head of a grammar file."""
    lines = text.split("\n")
    end = next(index for index, line in enumerate(lines) if not line.startswith("#"))
    return " ".join(line[1:].strip() for line in lines[:end])


def _production(production: Production) -> Iterator[str]:
    names = " or ".join(f"`{name}`" for name in production.subsys.split("|"))
    shown = "always shown" if production.subsys == "ALWAYS" else f"shown with {names}"
    if production.foreign:
        shown = "a line of another program"
    if production.follows:
        shown = f"goes on with {production.follows}, without a prefix"
    event = f"[{production.event}](../../reference/events.md#{production.event.lower()})"
    yield f"\n## {production.name}\n"
    yield f"{meaning.releases(production)} · {shown} · {event}\n"
    yield f"    {production.line}"
    for name, line in production.details.fragments.items():
        if f":*{name}}}" in production.line:
            yield f"        {name} = {line}"
    yield f"\n{escape_markdown(production.says)}\n"
    yield "```text"
    yield from production.samples
    yield "```"
