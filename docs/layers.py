"""Draws the rooms of the package by what they import: ``docs/pictures.py`` writes it as ``layers.svg``.

A room is a folder or a module at the root. Each stands one row above the highest room that it imports, so that all
arrows would point down; a circle would be an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "nccl_inspect"
TITLE = "The rooms of nccl-inspect: each imports only from the rows below its own"
_IMPORT = re.compile(
    r"^ *(?:from (nccl_inspect[\w.]*) import (\([^)]*\)|[^#\n]*)|import (nccl_inspect[\w.]*))", re.MULTILINE
)
WIDTH, HEIGHT, GAP, PAD = 132, 34, 8, 16
"""Of a box, between boxes, and around the picture."""
CSS = """text { font: 14px ui-sans-serif, system-ui, "DejaVu Sans", sans-serif; fill: #1c2328; text-anchor: middle }
rect { fill: #e8eef2; stroke: #9fb0bb } .page { fill: #ffffff; stroke: none }"""


@cache
def modules() -> tuple[str, ...]:
    """Return all modules, as paths below the package without their suffix: ``model/job``, ``cli/__init__``."""
    return tuple(sorted(file.relative_to(PACKAGE).with_suffix("").as_posix() for file in PACKAGE.rglob("*.py")))


def room_of(module: str) -> str:
    """Return the folder or the module at the root; empty for the package itself."""
    first = module.split("/")[0]
    return "" if first == "__init__" else first


@cache
def imports_of(module: str) -> frozenset[str]:
    """Return modules of the package that a module imports, wherever in its text: ``model.job``, without the root."""
    found: set[str] = set()
    for origin, names, whole in _IMPORT.findall((PACKAGE / f"{module}.py").read_text(encoding="utf-8")):
        listed = [name.split()[0] for name in names.strip("()").split(",") if name.strip()]
        found |= {whole} if whole else _targets(origin, listed)
    return frozenset(name.partition(".")[2] for name in found)


def _targets(module: str, names: list[str]) -> set[str]:
    """Return what an import names: ``from N import platforms`` imports the room, not the package."""
    if module != PACKAGE.name:
        return {module}
    rooms = {room_of(name) for name in modules()}
    return {f"{module}.{name}" if name in rooms else module for name in names}


def rows() -> list[list[str]]:
    """Return the rooms, from those that import no other one upward."""
    used: dict[str, set[str]] = {room_of(module): set() for module in modules()}
    for module in modules():
        used[room_of(module)] |= {target.split(".")[0] for target in imports_of(module)} - {room_of(module)}
    found: list[list[str]] = []
    placed: set[str] = set()
    while len(placed) < len(used):
        row = sorted(room for room in used if room not in placed and used[room] <= placed)
        if not row:
            raise ValueError(f"these import each other: {', '.join(sorted(used.keys() - placed))}")
        found.append(row)
        placed.update(row)
    return found


def svg() -> str:
    """Return the rows as boxes, the lowest at the bottom."""
    drawn = list(reversed(rows()))
    width = max(map(len, drawn)) * (WIDTH + GAP) - GAP + 2 * PAD
    height = len(drawn) * (HEIGHT + GAP) - GAP + 2 * PAD
    boxes = [box for number, row in enumerate(drawn) for box in _row(row, number, width)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img">',
            f"<title>{escape(TITLE)}</title>",
            f"<style>{CSS}</style>",
            '<rect class="page" width="100%" height="100%" rx="8"/>',
            *boxes,
            "</svg>",
            "",
        ]
    )


def _row(rooms: list[str], number: int, width: int) -> Iterator[str]:
    left = (width - len(rooms) * (WIDTH + GAP) + GAP) / 2
    top = PAD + number * (HEIGHT + GAP)
    for place, room in enumerate(rooms):
        x = left + place * (WIDTH + GAP)
        middle = x + WIDTH / 2
        yield f'<rect x="{x:g}" y="{top}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
        yield f'<text x="{middle:g}" y="{top + 22}">{escape(room or PACKAGE.name)}</text>'
