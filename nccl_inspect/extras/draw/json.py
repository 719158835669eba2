"""Communicators and machines for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nccl_inspect.model.communicators.shapes import crossings, fewest_crossings, host_of, is_closed, tree_shape
from nccl_inspect.model.document import clean, traits
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.report import Style
from nccl_inspect.report.picture import UNKNOWN_HOST, View
from nccl_inspect.topology import Topology
from nccl_inspect.util.records import pick_fields
from nccl_inspect.util.text import escape_controls

DRAWS = False
_NO_COMMUNICATOR = CommunicatorInfo("", None, 0, [], [], None, [], [], "")
"""Stands for the unknown communicator of connections without one."""


def render(views: Sequence[View], machines: Sequence[Topology], style: Style) -> str:
    """Return a document with ``communicators`` and ``machines``."""
    document = {"communicators": list(map(_view, views)), "machines": list(map(_machine, machines))}
    return json.dumps(document, indent=1) + "\n"


def _view(view: View) -> dict[str, Any]:
    hosts = host_of(view.hosts, UNKNOWN_HOST)
    shapes = [(tree, tree_shape(tree.links)) for tree in view.trees]
    return {
        "id": escape_controls(view.name),
        **pick_fields(view, "parent", "nranks", "channels", "state"),
        "hosts": [{"name": escape_controls(name), "ranks": ranks} for name, ranks in view.hosts.items()],
        "gpus": [
            {"rank": rank, "nvml_dev": gpu.nvml_dev, "bus_id": gpu.bus_id and escape_controls(gpu.bus_id)}
            for rank, gpu in view.gpus.items()
        ],
        **clean(traits(view.info or _NO_COMMUNICATOR)),
        "rings": [
            {
                "channels": list(ring.channels),
                "ranks": list(ring.ranks),
                "closed": is_closed(ring.ranks, view.nranks),
                "crossings": crossings(ring.ranks, hosts),
                "fewest_crossings": fewest_crossings(ring.ranks, hosts),
            }
            for ring in view.rings
        ],
        "trees": [
            {
                "channels": list(tree.channels),
                "links": list(map(list, tree.links)),
                **pick_fields(shape, "roots", "depth"),
                "most_children": shape.children,
            }
            for tree, shape in shapes
        ],
        "links": [
            {
                **pick_fields(link, "src", "dst", "kind"),
                "channels": list(link.channels),
                "transport": link.transport,
                "detail": link.detail and escape_controls(link.detail),
                "gdr": link.gdr,
            }
            for link in view.links
        ],
    }


def _machine(machine: Topology) -> dict[str, Any]:
    return {
        "name": escape_controls(machine.name),
        "gpus": [
            {"index": gpu.index, "bus_id": gpu.bus_id and escape_controls(gpu.bus_id), "sm": gpu.sm, "gdr": gpu.gdr}
            for gpu in machine.devices
        ],
        "pairs": [{"gpus": [a, b], "class": kind} for (a, b), kind in sorted(machine.classes.items())],
        "nics": [
            {
                "index": nic.index,
                "name": nic.name and escape_controls(nic.name),
                **pick_fields(nic, "gbps", "port", "gdr"),
                "bus_id": nic.bus_id and escape_controls(nic.bus_id),
                "classes": [{"gpu": place, "class": kind} for place, kind in sorted(nic.classes.items())],
            }
            for nic in machine.nics
        ],
    }
