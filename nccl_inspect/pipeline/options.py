"""How a job is judged: what the command line, a settings file and the Python API say about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nccl_inspect.util.records import Frozen

if TYPE_CHECKING:
    from nccl_inspect.judging.accepted import Terms
    from nccl_inspect.topology import Topology


class Options(Frozen):
    """Holds how a job is judged."""

    platform: str | None = None  # machine type, when the log does not name it
    topologies: tuple[str, ...] = ()  # topology files; below, topologies that were read already
    topologies_read: tuple[Topology, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    terms: Terms | None = None  # how findings are taken; None as their rules say
    config: str | None = None  # the settings file that has a part in this
    job: str | None = None  # the number or name of one of several jobs; without it the worst
    run: int | None = None  # the number of one of several runs of a job, from 1 for the first; without it the newest
