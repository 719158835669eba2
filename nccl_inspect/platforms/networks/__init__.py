"""The networks that machine types name, one TOML file each. Keys:

* ``rdma``: whether NICs read and write memory there; true where it is left out
* ``plugin``: what NCCL needs to use it, as people call it; left out where NCCL itself can
* ``vendor``: of the cloud whose network it is
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from nccl_inspect.util.records import Frozen, frozen


@frozen
class Network(Frozen):
    """Holds what rules ask about a network."""

    rdma: bool = True
    plugin: str = ""
    vendor: str = ""


@cache
def named(name: str | None) -> Network:
    """The network of that name; one of which nothing is known for any other name."""
    file = Path(__file__).parent / f"{name}.toml"
    if name is None or not file.is_file():
        return Network()
    import tomllib  # a log without a platform does not need it

    return Network(**tomllib.loads(file.read_text(encoding="utf-8")))
