"""The data that the scripts of the page draw from: paths, rings and trees, each text once, so that it stays small."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from nccl_inspect.judging.culprit_words import name
from nccl_inspect.model.document import clean
from nccl_inspect.model.job import CommunicatorInfo, Job, PathKind
from nccl_inspect.picture.looks import LOOKS, gpu_words, lanes, look_of, title_of
from nccl_inspect.picture.view import UNKNOWN_HOST, Link, Shape, View, views
from nccl_inspect.report.tables import gdr_word
from nccl_inspect.util.wording import ranges

_NUMBER = re.compile(r"(\d+)")
LETTERS = {"p2p": "P", "gdr": "G", "net": "N", "shm": "S", "collnet": "C", "unknown": "U"}
"""What stands in the cells of the matrix beside the colour."""
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


class _Once:
    """Values by number: each is kept once, in the order in which they came."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self.values: list[Any] = []

    def number(self, value: Any) -> int:
        key = json.dumps(value)
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(value)
        return self._numbers[key]


def document(job: Job, names: dict[str, str]) -> str:
    """The data as JSON in which nothing can end the ``script`` element that holds it.

    Args:
        job: the judged job.
        names: short names of the sources.
    """
    text = json.dumps(clean(_document(job, names)), ensure_ascii=True, separators=(",", ":"))
    return "".join(_UNSAFE.get(char, char) for char in text) if set(_UNSAFE) & set(text) else text


def _document(job: Job, names: dict[str, str]) -> dict[str, Any]:
    drawn = views(job)
    hosts = _hosts(job)
    kinds, patterns, sources = _Once(), _Once(), _Once()
    paths = []
    rows = job.paths.values("src", "dst", "kind", "communicators")
    number_of = cache(lambda kind, communicators: kinds.number(_kind(kind, communicators)))
    for (src, dst, *kind), first in zip(rows, job.paths.first_lines(), strict=True):
        texts = _NUMBER.split(first.text)
        where = sources.number(names.get(first.source, first.source)), first.line
        paths.append([src, dst, number_of(*kind), *where, patterns.number(texts[::2]), " ".join(texts[1::2])])
    incomplete = {comm.id: comm for comm in job.communicators}
    return {
        "hosts": [[host, ranks] for host, ranks in hosts.items()],
        "gpus": {rank: words for view in drawn for rank in view.gpus if (words := gpu_words(view, rank))},
        "looks": [[look.key, LETTERS[look.key], look.words, look.dashes] for look in LOOKS],
        "kinds": kinds.values,
        "paths": paths,
        "patterns": patterns.values,
        "sources": sources.values,
        "comms": [_comm(view, incomplete.get(view.name)) for view in drawn if view.rings or view.trees],
        "rules": sorted({finding.rule for finding in job.findings}),
        "culprits": [[words, ranks] for words, ranks in culprits(job).items()],
    }


def culprits(job: Job) -> dict[str, list[int]]:
    """What the bad paths have in common, in words, with its ranks, which the matrix marks."""
    return {name(culprit): culprit.ranks for finding in job.findings for culprit in finding.culprits if culprit.ranks}


def _hosts(job: Job) -> dict[str, list[int]]:
    """The ranks of each host, hosts in the order of the job; ranks of unknown hosts under ``?``."""
    hosts = {host.name: list(host.ranks) for host in job.hosts if host.ranks}
    known = {rank for ranks in hosts.values() for rank in ranks}
    named = job.paths.ends()
    if unknown := sorted(named - known):
        hosts[UNKNOWN_HOST] = unknown
    return hosts


def look_of_kind(kind: PathKind) -> str:
    """The key of how a path looks."""
    return look_of(Link(0, 0, "connection", (), kind.detail, kind.transport, kind.gdr)).key


def _kind(path: PathKind, communicators: tuple[str, ...]) -> dict[str, Any]:
    """What paths have in common; what is not there is left out."""
    everything = {
        "look": look_of_kind(path),
        "transport": path.transport,
        "detail": path.detail,
        "scope": path.scope,
        "gdr": None if path.gdr is None else gdr_word(path.gdr),
        "nic": path.nic or (None if path.nic_index is None else f"index {path.nic_index}"),
        "pxn": path.pxn_rank,
        "shared": path.shared,
        "link": path.link,
        "channels": ranges(path.channels),
        "comms": communicators,
        "verdict": path.verdict,
        "rules": path.rules,
        "also": [f"{way.detail} in {', '.join(way.communicators)}" for way in path.also],
        "guessed": path.guessed,
    }
    return {name: value for name, value in everything.items() if value not in (None, False, (), [])}


def _comm(view: View, comm: CommunicatorInfo | None) -> dict[str, Any]:
    cut = set(comm.incomplete_rings) if comm else set()
    ways = _Once()
    edges = {(link.src, link.dst): ways.number([look_of(link).key, link.detail]) for link in view.links}
    return {
        "name": view.name,
        "title": title_of(view),
        "rings": [_ring(shape, cut) for shape in view.rings],
        "trees": [{"channels": lanes(shape.channels), "links": shape.links} for shape in view.trees],
        "ways": ways.values,
        "edges": _flat((src, dst, way) for (src, dst), way in edges.items()),
    }


def _ring(shape: Shape, cut: set[int]) -> dict[str, Any]:
    return {"channels": lanes(shape.channels), "ranks": shape.ranks, "cut": bool(cut & set(shape.channels))}


def _flat(rows: Iterable[Sequence[int]]) -> list[int]:
    return [value for row in rows for value in row]
