"""The document ``nccl-inspect/1``, described by ``nccl_inspect/schema/nccl-inspect-1.json``.

It is written as it is made: each path, of which there are most, is put together from text that is made once for each
kind of path. Fields and paths begin a line also where nothing is indented, for ``head`` and ``grep``.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from nccl_inspect.model import document
from nccl_inspect.model.job import Job, Selection
from nccl_inspect.report import Style


def render(job: Job, style: Style) -> str:
    """Return the document as JSON."""
    return "\n".join(pieces(job, style)) + "\n"


def pieces(job: Job, style: Style) -> Iterator[str]:
    """Yield the same in parts that end where lines end, indented for reading if the style says so."""
    fields = list(document.parts(job, style.only))

    def text(value: Any, depth: int) -> str:
        if style.indent:
            return json.dumps(value, indent=1).replace("\n", f"\n{' ' * depth}")
        return json.dumps(value, separators=(",", ":"))

    pad, gap = (" ", " ") if style.indent else ("", "")
    yield "{"
    for place, (name, value) in enumerate(fields, 1):
        comma = "," if place < len(fields) else ""
        if isinstance(value, Selection) and value:
            yield f'{pad}"{name}":{gap}['
            yield from _entries(value, text, pad, gap)
            yield f"{pad}]{comma}"
        else:
            yield f'{pad}"{name}":{gap}{text([] if isinstance(value, Selection) else value, 1)}{comma}'
    yield "}"


def _entries(paths: Selection, text: Callable[[Any, int], str], pad: str, gap: str) -> Iterator[str]:
    new = f"\n{pad * 3}" if pad else ""
    begin, end = f"{pad * 2}{{{new}", f"\n{pad * 2}}}" if pad else "}"

    def fields(values: dict[str, Any]) -> str:
        return text(document.clean(values), 2).removeprefix("{").removesuffix("}").rstrip()

    @cache
    def word(value: object) -> str:
        return text(document.clean(value), 3)

    columns = (*document.ENDS, lambda kind: fields(document.way(kind)), "communicators")
    rows = paths.values(*columns, lambda kind: fields(document.judgement(kind)))
    for left, (src, dst, src_host, dst_host, way, comms, judgement) in zip(
        range(len(paths) - 1, -1, -1), rows, strict=True
    ):
        yield (
            f'{begin}"src":{gap}{src},{new}"dst":{gap}{dst},{new}"src_host":{gap}{word(src_host)},{new}'
            f'"dst_host":{gap}{word(dst_host)},{way},{new}"communicators":{gap}{word(comms)},{judgement}{end}'
            f"{',' if left else ''}"
        )
