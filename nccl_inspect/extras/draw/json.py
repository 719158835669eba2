"""Communicators and machines for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nccl_inspect.extras.draw import fewest_crossings, host_of, tree_shape
from nccl_inspect.model.communicators.rings_and_trees import crossings, is_closed
from nccl_inspect.model.document import clean, traits
from nccl_inspect.report import Style
from nccl_inspect.report.picture import UNKNOWN_HOST, View
from nccl_inspect.topology import Topology
from nccl_inspect.util.records import pick_fields

DRAWS = False


def render(views: Sequence[View], machines: Sequence[Topology], style: Style) -> str:
    """Return a document with ``communicators`` and ``machines``."""
    document = {"communicators": list(map(_view, views)), "machines": list(map(_machine, machines))}
    return json.dumps(clean(document), indent=1) + "\n"


def _view(view: View) -> dict[str, Any]:
    hosts = host_of(view.hosts, UNKNOWN_HOST)
    shapes = [(tree, tree_shape(tree.links)) for tree in view.trees]
    return {
        **pick_fields(view.comm, "id", "parent", "nranks", "channels", "state"),
        "hosts": [{"name": name, "ranks": ranks} for name, ranks in view.hosts.items()],
        "gpus": [{"rank": rank, **pick_fields(gpu, "nvml_dev", "bus_id")} for rank, gpu in view.gpus.items()],
        **traits(view.comm),
        "rings": [
            {
                **pick_fields(ring, "channels", "ranks"),
                "closed": is_closed(ring.ranks, view.comm.nranks),
                "crossings": crossings(ring.ranks, hosts),
                "fewest_crossings": fewest_crossings(ring.ranks, hosts),
            }
            for ring in view.rings
        ],
        "trees": [
            pick_fields(tree, "channels", "links")
            | pick_fields(shape, "roots", "depth")
            | {"most_children": shape.children}
            for tree, shape in shapes
        ],
        "links": [
            pick_fields(link, "src", "dst", "kind", "channels", "transport", "detail", "gdr") for link in view.links
        ],
    }


def _machine(machine: Topology) -> dict[str, Any]:
    return {
        "name": machine.name,
        "gpus": [pick_fields(gpu, "index", "bus_id", "sm", "gdr") for gpu in machine.devices],
        "pairs": [{"gpus": pair, "class": kind} for pair, kind in sorted(machine.classes.items())],
        "nics": [
            pick_fields(nic, "index", "name", "gbps", "port", "gdr", "bus_id")
            | {"classes": [{"gpu": place, "class": kind} for place, kind in sorted(nic.classes.items())]}
            for nic in machine.nics
        ],
    }
