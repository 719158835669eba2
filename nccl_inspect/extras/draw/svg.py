"""Communicators as a picture: hosts are boxes with their ranks on a circle; above 64 ranks only the hosts are drawn.

The layout is plain arithmetic, so the same log gives the same bytes; ``svg.j2`` writes it. One panel for each kind of
link (rings, trees), one below the other. Links differ in color, dash pattern and a title that browsers show under the
pointer. Points are complex numbers.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from nccl_inspect.extras.draw import bundles
from nccl_inspect.report import Style, picture
from nccl_inspect.report.words import environment
from nccl_inspect.topology import Topology
from nccl_inspect.util.text import cut, escape_controls
from nccl_inspect.util.wording import count, ranges

DRAWS = True
_PAD = 16
_NODE_WIDTH, _NODE_HEIGHT = 38, 22
_SPACE = 76  # between the centers of two ranks on the circle of their host
_HEAD = 44  # height of a panel's title and of the space below it
_LINE = 18
_HOST_WIDTH, _HOST_HEIGHT = 150, 46
_CHAR = 7.0  # width of a letter, about
_LETTER = 10.0  # height of a letter of a label
_GAP = 3.0  # between a link and its label
_BEND = 0.13  # how far a link bends, so that both directions can be seen


class _Box(NamedTuple):
    """A host in a panel."""

    host: str
    ranks: list[int]
    corner: complex
    width: float
    height: float

    @property
    def center(self) -> complex:
        return self.corner + complex(self.width, self.height) / 2

    @property
    def top(self) -> complex:
        return complex(self.center.real, self.corner.imag)

    @property
    def name(self) -> str:
        return escape_controls(self.host)

    @property
    def words(self) -> str:
        return f"ranks {ranges(self.ranks)}"

    @property
    def room(self) -> int:
        return int((self.width - _PAD) / _CHAR)  # letters


def render(views: Sequence[picture.View], machines: Sequence[Topology], style: Style) -> str:
    """Return an SVG document of its own, without scripts and references."""
    panels = [_panel(view, kind) for view in views for kind in view.kinds or [""]]
    tops = [*accumulate((panel["height"] for panel in panels), initial=0.0)]
    width, height = max([panel["width"] for panel in panels] or [300.0]), tops[-1]
    notes = []
    if others := [name for view in views for name in view.others]:
        note = f"{count(len(others), 'more communicator')}: --communicator NAME, or all of them with --format text"
        notes.append((complex(_PAD, height + _LINE), note, "small"))
        width, height = max(width, len(note) * _CHAR + 2 * _PAD), height + 2 * _LINE
    if not panels:
        notes.append((_PAD + 24j, "no communicator and no connection in this log", "title"))
        height = 40
    pages = environment(Path(__file__).parent)
    pages.filters["cut"] = cut
    return (
        pages.get_template("svg.j2").render(
            **{
                "width": f"{width:.0f}",
                "height": f"{height:.0f}",
                "i": 1j,
                "looks": picture.LOOKS,
                "notes": notes,
                "pad": _PAD,
                "node": (_NODE_WIDTH, _NODE_HEIGHT),
            },
            described="; ".join(map(picture.view_title, views)) or "nothing to draw",
            panels=zip(tops, panels, strict=False),
        )
        + "\n"
    )


def _panel(view: picture.View, kind: str) -> dict[str, Any]:
    """Draw all links of a kind; hosts are in a grid, folded ones in alternating direction: rings join neighbors."""
    title = picture.view_title(view) + (f": {kind}s" if kind else "")
    columns, size = math.ceil(math.sqrt(len(view.hosts) * 1.4)), (_HOST_WIDTH, _HOST_HEIGHT)
    width, height = float(_HOST_WIDTH), float(_HOST_HEIGHT)
    if not view.is_folded:
        size, reach = (_NODE_WIDTH, _NODE_HEIGHT), 2 * _radius(max(map(len, view.hosts.values()), default=1))
        width, height = reach + _NODE_WIDTH + 3 * _PAD, reach + _NODE_HEIGHT + 3 * _PAD + _LINE
    boxes = []
    for n, (host, ranks) in enumerate(view.hosts.items()):
        row, column = divmod(n, columns)
        if view.is_folded and row % 2:
            column = columns - 1 - column
        corner = complex(_PAD + column * (width + 3 * _PAD), _HEAD + row * (height + 3 * _PAD))
        boxes.append(_Box(host, ranks, corner, width, height))
    spots = {rank: at for box in boxes for rank, at in _rank_points(box).items()}
    arrows, lanes = [], dict.fromkeys(picture.LOOKS, 0)
    if view.is_folded:
        middles = {box.host: box.center for box in boxes}
        for src, dst, look, links in bundles(view, kind):
            about = f"{escape_controls(src)} -> {escape_controls(dst)}: {count(links, 'link')}, {look.words}"
            path, at = _draw_arrow(middles[src], middles[dst], size, len(str(links)))
            arrows.append((path, look, about, at, str(links)))
            lanes[look] += links
    else:
        drawn = [link for link in view.links if link.kind == kind and link.src in spots and link.dst in spots]
        differ = len({link.channels for link in drawn}) > 1 and view.comm.nranks <= 16
        for link in drawn:
            label, look = ranges(link.channels) if differ else "", picture.find_look(link)
            path, at = _draw_arrow(spots[link.src], spots[link.dst], size, len(label))
            arrows.append((path, look, picture.describe_link(link), at, label))
            lanes[look] += 1
    if kind == "ring":
        title += f" ({'; '.join(picture.channel_words(ring.channels) for ring in view.rings[:4])})"
    titles = {rank: ", ".join(filter(None, (f"rank {rank}", picture.gpu_words(view, rank)))) for rank in spots}
    loops = _LINE * 2 if view.is_folded else 0
    bottom = max((box.corner.imag + box.height for box in boxes), default=_HEAD) + _LINE + loops
    used = [(look, number) for look, number in lanes.items() if number]
    right = max((box.corner.real + box.width for box in boxes), default=0.0)
    return {
        **{"title": title, "is_folded": view.is_folded, "boxes": boxes, "arrows": arrows},
        "nodes": [] if view.is_folded else [(rank, at, titles[rank]) for rank, at in spots.items()],
        "legend": [(bottom + n * _LINE, look, count(number, "link")) for n, (look, number) in enumerate(used)],
        "width": max(right + _PAD, len(title) * 8.6 + 2 * _PAD),
        "height": bottom + len(used) * _LINE + _PAD,
    }


def _radius(ranks: int) -> float:
    return 0.0 if ranks < 2 else max(_SPACE * ranks / (2 * math.pi), _SPACE / 1.5)


def _rank_points(box: _Box) -> dict[int, complex]:
    number, middle = max(len(box.ranks), 1), box.center + _LINE / 2 * 1j
    step = 2 * math.pi / number
    start = -math.pi / 2 - step / 2
    return {rank: middle + cmath.rect(_radius(number), start + step * n) for n, rank in enumerate(box.ranks)}


def _draw_arrow(start: complex, end: complex, size: tuple[float, float], letters: int) -> tuple[str, complex]:
    """Return the path of a link between boxes or ranks of a size, and where a label of some letters stands."""
    if start == end:  # within a folded host: a loop at its lower right corner
        a = start + complex(_HOST_WIDTH / 2 - 26, _HOST_HEIGHT / 2)
        return f"M{a.real:.1f} {a.imag:.1f} c0 22 26 22 20 0", a + (10 + 30j)
    bend = (start + end) / 2 + _BEND * 1j * (end - start)
    a, b = _border_point(start, bend, size), _border_point(end, bend, size)
    # The label is on the outer side of the link, where a short one does not hide it.
    side = 1j * (end - start) / abs(end - start)
    room = abs(side.real) * letters * _CHAR / 2 + abs(side.imag) * _LETTER / 2 + _GAP
    path = f"M{a.real:.1f} {a.imag:.1f} Q{bend.real:.1f} {bend.imag:.1f} {b.real:.1f} {b.imag:.1f}"
    return path, (a + 2 * bend + b) / 4 + side * room + 4j


def _border_point(start: complex, end: complex, box: tuple[float, float]) -> complex:
    way = end - start
    reaches = ((size / 2 + 2) / abs(part) for size, part in zip(box, (way.real, way.imag), strict=True) if part)
    return start + way * min(1.0, *reaches)
