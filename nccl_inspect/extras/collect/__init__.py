"""Gathers what settles why a job stands into one folder: logs, manifests, and the state of machines.

One module for each target: ``ARGUMENT`` names what it needs (empty for nothing), ``HELP`` says it in a line, and
``collect(collection, wanted)`` runs its table of commands, or raises a ``NcclInspectError`` where what is wanted cannot
be found. Nothing is ever changed: the tables have reading verbs only.
"""

from __future__ import annotations

from nccl_inspect.util.discovery import package

names, load = package(__name__, __file__, "collection")
