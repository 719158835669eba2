"""The command ``topology``: communicators, rings and trees as text and as pictures."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import sample_data
from click.testing import Result
from command_line import invoke
from defusedxml.ElementTree import fromstring

import nccl_inspect
from nccl_inspect.extras import draw as drawings
from nccl_inspect.extras.draw.cli_topology import pick_largest
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.report import Style
from nccl_inspect.report.picture import LOOKS, DrawnLink, DrawnShape, View, make_views

TWO_HOSTS = str(sample_data.FOLDER / "socket-2node-tp4-dp2" / "job.log")
ONE_HOST = str(sample_data.FOLDER / "p2p-nvlink-8gpu" / "job.log")


def run(*args: str, data: bytes | None = None) -> Result:
    return invoke("topology", *args, data=data)


def communicator(name: str, state: str, ranks: int, channels: int | None = None) -> CommunicatorInfo:
    return CommunicatorInfo(name, None, ranks, [], [], channels, [], [], state)


def many(ranks: int, on_each: int = 8) -> View:
    """Return a ring over many ranks: P2P within a host, GPUDirect between them."""
    hosts = {f"node-{n}": list(range(n * on_each, (n + 1) * on_each)) for n in range(ranks // on_each)}
    order = list(range(ranks))
    way = {True: ("P2P/IPC", "P2P", None), False: ("NET/IB", "NET", True)}
    links = tuple(
        DrawnLink(a, b, "ring", (0, 1), *way[a // on_each == b // on_each])
        for a, b in (*pairwise(order), (order[-1], 0))
    )
    world = communicator("world", "connected", ranks, 2)
    return View(world, hosts, rings=(DrawnShape((0, 1), tuple(order)),), links=links)


def test_a_picture_shows_the_largest_communicator_and_is_always_the_same() -> None:
    for form in ("svg", "dot"):
        picture = run(TWO_HOSTS, "--format", form).stdout
        assert picture == run(TWO_HOSTS, "--format", form).stdout
        assert "world: 8 ranks on 2 hosts" in picture
        assert "split" not in picture
        assert "split 1 color 0" in run(TWO_HOSTS, "--format", form, "--communicator", "split*").stdout
    small = View(communicator("small", "started", 2), {"a": [0, 1]})
    assert [view.comm.id for view in pick_largest([small, many(16)])] == ["world"]
    assert (pick_largest([small]), pick_largest([])) == ([small], [])


def test_labels_stand_beside_their_links() -> None:
    parts = list(fromstring(run(TWO_HOSTS, "--format", "svg").stdout).iter())
    labels = [part for part in parts if part.get("class") == "label"]
    curves = [
        tuple(map(float, re.findall(r"-?[\d.]+", part.get("d", ""))))
        for part in parts
        if part.get("class") == "link" and "Q" in part.get("d", "")
    ]
    assert len(labels) == 8
    for label in labels:
        x, y, half = float(label.get("x", 0)), float(label.get("y", 0)) - 4, 3 * len(label.text or "")
        for a, b, c, d, e, f in curves:
            for t in (step / 50 for step in range(51)):
                over = (1 - t) ** 2 * a + 2 * t * (1 - t) * c + t**2 * e
                down = (1 - t) ** 2 * b + 2 * t * (1 - t) * d + t**2 * f
                assert abs(x - over) >= half or abs(y - down) >= 4, label.text


def test_svg_is_sound_and_tells_links_by_more_than_colour() -> None:
    picture = run(TWO_HOSTS, "--format", "svg").stdout
    root = fromstring(picture)
    assert root.tag.endswith("svg")
    assert "6 more communicators: --communicator NAME" in picture
    links = [part for part in root.iter() if part.get("class") == "link"]
    assert sum(1 for link in links if len(link)) == 8 + 8  # with a title: rings, then trees
    assert "1 -&gt; 4: NET/Socket, channels 0-1" in picture
    assert len({look.dashes for look in LOOKS}) == len({look.color for look in LOOKS}) == len(LOOKS)
    width, height = (float(root.get(name) or 0) for name in ("width", "height"))
    for part in root.iter():
        if part.get("class") in ("host", "rank"):
            right, bottom = (
                float(part.get(a) or 0) + float(part.get(b) or 0) for a, b in (("x", "width"), ("y", "height"))
            )
            assert 0 <= right <= width
            assert 0 <= bottom <= height


def test_above_64_ranks_hosts_are_drawn() -> None:
    for ranks, rects in ((64, 64 + 8), (72, 9)):
        view = many(ranks)
        root = fromstring(drawings.load("svg").render([view], [], Style()))
        assert sum(1 for part in root.iter() if part.get("class") in ("host", "rank")) == rects
        text = drawings.load("text").render([view], [], Style(width=40))
        assert ("node-0 inside: 7 links, P2P" in " ".join(text.split())) == (ranks > 64)
        dot = drawings.load("dot").render([view], [], Style())
        assert ('label="rank 63' in dot) == (ranks == 64)
        assert dot.count("{") == dot.count("}")


def boxes_of(root: Any, kind: str) -> list[tuple[Any, ...]]:
    """Return the boxes of a kind: title, place and size."""
    return [
        (part[0].text or "", *(float(part.get(name) or 0) for name in ("x", "y", "width", "height")))
        for part in root.iter()
        if part.get("class") == kind
    ]


def test_boxes_do_not_cover_each_other() -> None:
    boxes = boxes_of(fromstring(drawings.load("svg").render([many(64)], [], Style())), "rank")
    for n, (_, x, y, width, height) in enumerate(boxes):
        assert all(abs(x - a) >= width or abs(y - b) >= height for _, a, b, _, _ in boxes[n + 1 :])


def test_narrow_terminals_do_not_break_the_text() -> None:
    for log in (TWO_HOSTS, ONE_HOST):
        job = nccl_inspect.read(log)
        text = drawings.load("text").render(make_views(job), [], Style(width=40))
        assert max(map(len, text.splitlines())) <= 40
        assert "\x1b" not in text


def test_names_from_a_log_cannot_break_a_picture() -> None:
    view = View(communicator("x", "started", 1), {'a"<b>&': [0]})
    assert fromstring(drawings.load("svg").render([view], [], Style())) is not None
    assert 'label="a\\"<b>&"' in drawings.load("dot").render([view], [], Style())
