"""Gathers what settles why a job stands into one folder: logs, manifests, and the state of machines.

One module for each target: ``ARGUMENT`` names what it needs (empty for nothing), ``HELP`` says it in a line, and
``collect(collection, wanted)`` runs its table of commands. Nothing is ever changed: the tables have reading verbs only.
"""

from __future__ import annotations

from typing import Protocol

from nccl_inspect.extras.collect.collection import Collection
from nccl_inspect.util.discovery import Package
from nccl_inspect.util.records import Frozen, frozen


@frozen
class Wanted(Frozen):
    """Holds what to collect."""

    argument: str = ""
    """The selector or number of the job."""
    namespace: str = ""
    context: str = ""
    """Of the kubeconfig; empty for the present one."""


class Target(Protocol):
    """A module that knows one kind of target."""

    ARGUMENT: str
    HELP: str

    def collect(self, collection: Collection, wanted: Wanted) -> None:
        """Gather the files.

        Raises:
            NcclInspectError: what is wanted cannot be found.
        """


_MODULES: Package[Target] = Package(__name__, __file__, "collection", "kubectl", "ras")
names, load = _MODULES.names, _MODULES.load
