"""What joins the GPUs and NICs of a machine: ``nvidia-smi topo -m``, and the XML that NCCL writes of it."""

from __future__ import annotations

import re

from nccl_inspect import topology
from nccl_inspect.artifacts import NotOfKindError, machine
from nccl_inspect.errors import TopologyError
from nccl_inspect.topology import Topology

KIND = "topology file"
START = re.compile(rb"(?:\x1b\[4m)?[ \t]+(?:\x1b\[4m)?GPU0\b[^\n]*\n(?:\x1b\[0m)?GPU0[ \t]+X\b")
_XML = re.compile(rb"(?:<\?xml[^>]*\?>\s*)?(?:<!--.*?-->\s*)*<(?:system|graphs) [^>]*\bversion=", re.DOTALL)


def recognises(_name: str, head: bytes) -> bool:
    """Return whether a file is of one of these formats, by its first bytes."""
    return machine.begins(head, START) or machine.begins(head, _XML)


def read(name: str, data: bytes) -> Topology:
    """Return the topology.

    Raises:
        NotOfKindError: the rest of the file is the log of a job.
        ValueError: it is damaged.
    """
    if machine.is_of_job(data):
        raise NotOfKindError
    try:
        return topology.read_any(data.decode("utf-8", "replace"), name)
    except TopologyError as error:
        raise ValueError(str(error).removeprefix(f"{name}: ")) from None
