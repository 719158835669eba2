"""The command ``topology``: communicators, rings and trees as text and as pictures."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import large_job
import pytest
import sample_data
from click.testing import Result
from command_line import invoke
from defusedxml.ElementTree import fromstring
from repository import TESTS

import nccl_inspect
from nccl_inspect import drawing as drawings
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.picture.looks import LOOKS
from nccl_inspect.picture.tree_layout import places
from nccl_inspect.picture.view import DrawnLink, DrawnShape, View, largest, views
from nccl_inspect.report import Style

TWO_HOSTS = str(sample_data.FOLDER / "socket-2node-tp4-dp2" / "job.log")
ONE_HOST = str(sample_data.FOLDER / "p2p-nvlink-8gpu" / "job.log")
FRAGMENT = (
    b"a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA\n"
    b"b:2:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/GDRDMA\n"
)


def run(*args: str, data: bytes | None = None) -> Result:
    return invoke("topology", *args, data=data)


def many(ranks: int, on_each: int = 8) -> View:
    """A ring over many ranks: P2P within a host, GPUDirect between them."""
    hosts = {f"node-{n}": list(range(n * on_each, (n + 1) * on_each)) for n in range(ranks // on_each)}
    order = list(range(ranks))
    way = {True: ("P2P/IPC", "P2P", None), False: ("NET/IB", "NET", True)}
    links = tuple(
        DrawnLink(a, b, "ring", (0, 1), *way[a // on_each == b // on_each])
        for a, b in (*pairwise(order), (order[-1], 0))
    )
    return View("world", "connected", ranks, 2, None, hosts, rings=(DrawnShape((0, 1), tuple(order)),), links=links)


def test_text_shows_rings_trees_and_how_data_goes() -> None:
    text = run(TWO_HOSTS).stdout
    assert "world: 8 ranks on 2 hosts, 2 channels, ended in order" in text
    assert "channels 0-1: 0 > 3 > 2 > 1 > 4 > 7 > 6 > 5 > 0" in text
    assert "6 x P2P/CUMEM, 2 x NET/Socket, leaves a host 2 times (2 at least)" in text
    assert (
        "tree      channel 1: depth 4, at most 2 below a rank\n    4\n      0  NET/Socket\n        1  P2P/CUMEM\n"
        in text
    )
    assert "use likely DP: 4 groups of every 4th rank, each across hosts, cover the job" in " ".join(text.split())
    assert text.count("\n\n") == 6


def test_channels_and_communicators_are_chosen() -> None:
    text = run(TWO_HOSTS, "--channel", "1", "--communicator", "world").stdout
    assert "tree      channel 1" in text
    assert "channel 0" not in text
    assert "split" not in text
    assert run(TWO_HOSTS, "--communicator", "split 2*").stdout.count("ranks on 2 hosts") == 4
    with pytest.raises(NcclInspectError, match="no communicator 'word'; did you mean world"):
        run(TWO_HOSTS, "--communicator", "word")
    with pytest.raises(NcclInspectError, match="--channel x: not a channel; write 3, 0-7 or 0-56:8"):
        run(TWO_HOSTS, "--channel", "x")


def test_json_has_rings_trees_links_and_gpus() -> None:
    document = json.loads(run(TWO_HOSTS, "--format", "json").stdout)
    world = document["communicators"][0]
    ring = {"channels": [0, 1], "ranks": [0, 3, 2, 1, 4, 7, 6, 5]}
    assert world["rings"] == [ring | {"closed": True, "crossings": 2, "fewest_crossings": 2}]
    assert [(tree["roots"], tree["depth"], tree["most_children"]) for tree in world["trees"]] == [(1, 4, 2)] * 2
    assert [tree["channels"] for tree in world["trees"]] == [[0], [1]]
    assert world["gpus"][4] == {"rank": 4, "nvml_dev": 4, "bus_id": "a0"}
    way = {"transport": "NET", "detail": "NET/Socket", "gdr": False}
    assert {"src": 1, "dst": 4, "kind": "ring", "channels": [0, 1]} | way in world["links"]
    assert document["machines"] == []


def test_machines_are_shown_when_they_are_known() -> None:
    xml = str(TESTS / "data" / "h200-4gpu.nccl-topo.xml")
    text = run(ONE_HOST, "--topology", xml).stdout
    assert "h200-4gpu.nccl-topo.xml: 4 GPUs, 1 NIC" in text
    assert "12 x NV18 (both directions)" in text
    assert "0 eth0 10 Gb/s, no GPUDirect; PHB to GPU 1,3,5,7" in text
    (machine,) = json.loads(run(ONE_HOST, "--topology", xml, "--format", "json").stdout)["machines"]
    assert machine["gpus"][0] == {"index": 1, "bus_id": "0000:00:07.0", "sm": 90, "gdr": True}


def test_a_picture_shows_the_largest_communicator_and_is_always_the_same() -> None:
    for form in ("svg", "dot"):
        picture = run(TWO_HOSTS, "--format", form).stdout
        assert picture == run(TWO_HOSTS, "--format", form).stdout
        assert "world: 8 ranks on 2 hosts" in picture
        assert "split" not in picture
        assert "split 1 color 0" in run(TWO_HOSTS, "--format", form, "--communicator", "split*").stdout
    small = View("small", "started", 2, None, None, {"a": [0, 1]})
    assert [view.name for view in largest([small, many(16)])] == ["world"]
    assert (largest([small]), largest([])) == ([small], [])


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
    """The boxes of a kind: title, place and size."""
    return [
        (part[0].text or "", *(float(part.get(name) or 0) for name in ("x", "y", "width", "height")))
        for part in root.iter()
        if part.get("class") == kind
    ]


def test_boxes_do_not_cover_each_other() -> None:
    boxes = boxes_of(fromstring(drawings.load("svg").render([many(64)], [], Style())), "rank")
    for n, (_, x, y, width, height) in enumerate(boxes):
        assert all(abs(x - a) >= width or abs(y - b) >= height for _, a, b, _, _ in boxes[n + 1 :])


def test_trees_of_many_hosts_stand_level_by_level() -> None:
    picture = fromstring(run("-", "--format", "svg", data=large_job.log(16, channels=1)).stdout)
    last = [part for part in picture.iter() if part.tag.endswith("}g")][-1]
    by_host = {int(title.split(":")[0].rpartition("-")[2]): box for title, *box in boxes_of(last, "host")}
    assert sorted(by_host) == list(range(16))
    assert len({(box[0], box[1]) for box in by_host.values()}) == 16
    columns = sorted({box[0] for box in by_host.values()})
    level = {host: columns.index(box[0]) for host, box in by_host.items()}
    assert level[0] == 0
    assert all(level[child] == level[(child - 1) // 2] + 1 for child in range(1, 16)), "a binary tree"
    for column in columns:
        tops = sorted(box[1] for box in by_host.values() if box[0] == column)
        assert all(below - above > 46 for above, below in pairwise(tops))


def test_a_torn_tree_is_drawn() -> None:
    torn: tuple[tuple[tuple[int | None, int | None], ...], ...] = (
        ((0, 8), (8, 0)),
        ((0, 8), (8, 16), (16, 8)),
        ((None, 8), (0, 99)),
    )
    for links in torn:
        view = replace(many(72), trees=(DrawnShape((0,), links=links),))
        found = places(view, view.trees[0])
        assert found.keys() == view.hosts.keys()
        assert len(set(found.values())) == len(found)


def test_narrow_terminals_do_not_break_the_text() -> None:
    for log in (TWO_HOSTS, ONE_HOST):
        job = nccl_inspect.read(log)
        text = drawings.load("text").render(views(job), [], Style(width=40))
        assert max(map(len, text.splitlines())) <= 40
        assert "\x1b" not in text


def test_a_fragment_and_a_log_without_communicators_say_so() -> None:
    text = run("-", data=FRAGMENT).stdout
    assert "connections: 2 ranks on 2 hosts, no communicator in the log" in text
    assert "0 -> 1 NET/IB/GDRDMA, channel 0" in text
    assert "NET with GPUDirect RDMA" in run("-", "--format", "svg", data=FRAGMENT).stdout
    log = b"vm:1:1 [0] NCCL INFO NCCL version 2.27.3+cuda12.9\n"
    assert run("-", data=log).stdout == "no communicator and no connection in this log\n"
    assert "no communicator" in "".join(fromstring(run("-", "--format", "svg", data=log).stdout).itertext())
    assert run("-", "--format", "dot", data=log).stdout.startswith("digraph")


def test_names_from_a_log_cannot_break_a_picture() -> None:
    view = View("x", "started", 1, None, None, {'a"<b>&': [0]})
    assert fromstring(drawings.load("svg").render([view], [], Style())) is not None
    assert 'label="a\\"<b>&"' in drawings.load("dot").render([view], [], Style())
