"""Communicators as a picture: hosts are boxes with their ranks on a circle; above 64 ranks only the hosts are drawn.

The layout is plain arithmetic, so the same log gives the same bytes. One panel for each kind of link (rings, trees),
one below the other. Links differ in color, dash pattern and a title that browsers show under the pointer.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from nccl_inspect.extras.draw import bundles
from nccl_inspect.report import Style, picture
from nccl_inspect.topology import Topology
from nccl_inspect.util.text import cut, escape_controls
from nccl_inspect.util.wording import count, ranges

DRAWS = True
_BACKGROUND = '<rect width="100%" height="100%" fill="#fff"/>'
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
    """A host in a panel: points are complex numbers."""

    host: str
    ranks: list[int]
    corner: complex
    width: float
    height: float

    @property
    def center(self) -> complex:
        return self.corner + complex(self.width, self.height) / 2


class _Arrow(NamedTuple):
    start: complex
    end: complex
    look: picture.Look
    title: str
    label: str
    lanes: int = 1


class _Panel(NamedTuple):
    width: float
    height: float
    lines: list[str]


def render(views: Sequence[picture.View], machines: Sequence[Topology], style: Style) -> str:
    """Return an SVG document of its own, without scripts and references."""
    panels = [_panel(view, kind) for view in views for kind in view.kinds or [""]]
    width = max([panel.width for panel in panels] or [300.0])
    lines, top = [], 0.0
    for panel in panels:
        lines += [f'<g transform="translate(0 {top:.0f})">', *panel.lines, "</g>"]
        top += panel.height
    others = [name for view in views for name in view.others]
    if others:
        note = f"{count(len(others), 'more communicator')}: --communicator NAME, or all of them with --format text"
        lines.append(_text(complex(_PAD, top + _LINE), note, "small"))
        width, top = max(width, _text_width(note)), top + 2 * _LINE
    if not panels:
        lines.append(_text(_PAD + 24j, "no communicator and no connection in this log", "title"))
        top = 40
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {top:.0f}" width="{width:.0f}" '
        f'height="{top:.0f}" role="img" font-family="sans-serif" font-size="12">'
    )
    described = "; ".join(map(picture.view_title, views)) or "nothing to draw"
    markers = "".join(
        f'<marker id="{look.key}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{look.color}"/></marker>'
        for look in picture.LOOKS
    )
    css = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    begin = [
        head,
        f"<title>{escape(described)}</title>",
        f"<style>\n{css}</style>",
        _BACKGROUND,
        f"<defs>{markers}</defs>",
    ]
    return "\n".join([*begin, *lines, "</svg>"]) + "\n"


def _panel(view: picture.View, kind: str) -> _Panel:
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
    arrows = []
    if view.is_folded:
        middles = {box.host: box.center for box in boxes}
        for src, dst, look, lanes in bundles(view, kind):
            about = f"{escape_controls(src)} -> {escape_controls(dst)}: {count(lanes, 'link')}, {look.words}"
            arrows.append(_Arrow(middles[src], middles[dst], look, about, str(lanes), lanes))
    else:
        links = [link for link in view.links if link.kind == kind and link.src in spots and link.dst in spots]
        differ = len({link.channels for link in links}) > 1 and view.nranks <= 16
        for link in links:
            label, ends = ranges(link.channels) if differ else "", (spots[link.src], spots[link.dst])
            arrows.append(_Arrow(*ends, picture.find_look(link), picture.describe_link(link), label))
    if kind == "ring":
        title += f" ({'; '.join(picture.channel_words(ring.channels) for ring in view.rings[:4])})"
    lines = [_text(_PAD + 24j, title, "title")]
    for box in boxes:
        name, words, middle = escape_controls(box.host), ranges(box.ranks), complex(box.center.real, box.corner.imag)
        shape = f"{box.width:.1f}", f"{box.height:.1f}", 6
        lines.append(_rectangle("host", box.corner, *shape, f"{name}: ranks {words}"))
        room = int((box.width - _PAD) / _CHAR)
        lines.append(_text(middle + 15j, cut(name, room), "small mid"))
        if view.is_folded:
            lines.append(_text(middle + 34j, cut(f"ranks {words}", room), "small mid"))
    lines += [_draw_arrow(arrow, size) for arrow in arrows]
    for rank, at in () if view.is_folded else spots.items():
        about = ", ".join(filter(None, (f"rank {rank}", picture.gpu_words(view, rank))))
        corner = at - complex(_NODE_WIDTH, _NODE_HEIGHT) / 2
        lines.append(_rectangle("rank", corner, f"{_NODE_WIDTH}", f"{_NODE_HEIGHT}", 3, about))
        lines.append(_text(at + 4j, str(rank), "mid"))
    loops = _LINE * 2 if view.is_folded else 0
    bottom = max((box.corner.imag + box.height for box in boxes), default=_HEAD) + _LINE + loops
    used = [look for look in picture.LOOKS if any(arrow.look is look for arrow in arrows)]
    for number, look in enumerate(used):  # the legend
        y, lanes = bottom + number * _LINE, sum(arrow.lanes for arrow in arrows if arrow.look is look)
        lines.append(_stroke(f"M{_PAD} {y:.1f} h60", look) + "/>")
        lines.append(_text(complex(_PAD + 70, y + 4), f"{look.words} ({count(lanes, 'link')})", "small"))
    width = max((box.corner.real + box.width for box in boxes), default=0.0)
    return _Panel(max(width + _PAD, _text_width(title, 8.6)), bottom + len(used) * _LINE + _PAD, lines)


def _radius(ranks: int) -> float:
    return 0.0 if ranks < 2 else max(_SPACE * ranks / (2 * math.pi), _SPACE / 1.5)


def _rank_points(box: _Box) -> dict[int, complex]:
    number, middle = max(len(box.ranks), 1), box.center + _LINE / 2 * 1j
    step = 2 * math.pi / number
    start = -math.pi / 2 - step / 2
    return {rank: middle + cmath.rect(_radius(number), start + step * n) for n, rank in enumerate(box.ranks)}


def _draw_arrow(arrow: _Arrow, size: tuple[float, float]) -> str:
    start, end = arrow.start, arrow.end
    if start == end:  # within a folded host: a loop at its lower right corner
        a = start + complex(_HOST_WIDTH / 2 - 26, _HOST_HEIGHT / 2)
        path = f"M{_point(a)} c0 22 26 22 20 0"
        middle = a + (10 + 26j)
    else:
        bend = (start + end) / 2 + _BEND * 1j * (end - start)
        a, b = _border_point(start, bend, size), _border_point(end, bend, size)
        path = f"M{_point(a)} Q{_point(bend)} {_point(b)}"
        # The label is on the outer side of the link, where a short one does not hide it.
        side = 1j * (end - start) / abs(end - start)
        room = abs(side.real) * len(arrow.label) * _CHAR / 2 + abs(side.imag) * _LETTER / 2 + _GAP
        middle = (a + 2 * bend + b) / 4 + side * room
    label = _text(middle + 4j, arrow.label, "label") if arrow.label else ""
    return f"{_stroke(path, arrow.look)}><title>{escape(arrow.title)}</title></path>{label}"


def _border_point(start: complex, end: complex, box: tuple[float, float]) -> complex:
    way = end - start
    reaches = ((size / 2 + 2) / abs(part) for size, part in zip(box, (way.real, way.imag), strict=True) if part)
    return start + way * min(1.0, *reaches)


def _point(at: complex) -> str:
    return f"{at.real:.1f} {at.imag:.1f}"


def _stroke(path: str, look: picture.Look) -> str:
    dashes = f' stroke-dasharray="{look.dashes}"' if look.dashes else ""
    return (
        f'<path class="link" d="{path}" stroke="{look.color}" stroke-width="1.8"{dashes} marker-end="url(#{look.key})"'
    )


def _rectangle(kind: str, corner: complex, width: str, height: str, round_by: int, title: str) -> str:
    place = f'x="{corner.real:.1f}" y="{corner.imag:.1f}" width="{width}" height="{height}" rx="{round_by}"'
    return f'<rect class="{kind}" {place}><title>{escape(title)}</title></rect>'


def _text(at: complex, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{at.real:.1f}" y="{at.imag:.1f}">{escape(words)}</text>'


def _text_width(words: str, char: float = _CHAR) -> float:
    return len(words) * char + 2 * _PAD
