"""The data that the scripts of the page draw from: paths, rings and trees, each text once, so that it stays small."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

from nccl_inspect.judging.culprit_words import name
from nccl_inspect.model.document import clean
from nccl_inspect.model.job import CommunicatorInfo, Job, PathKind, Selection
from nccl_inspect.report.page.packing import Once, Texts, packed
from nccl_inspect.report.picture.looks import LOOKS, gpu_words, lanes, look_of, title_of
from nccl_inspect.report.picture.view import UNKNOWN_HOST, DrawnLink, DrawnShape, View, views
from nccl_inspect.report.tables import gdr_word
from nccl_inspect.util.wording import ranges

LETTERS = {"p2p": "P", "gdr": "G", "net": "N", "shm": "S", "collnet": "C", "unknown": "U"}
"""The text in the cells of the matrix beside the color."""
_MARK = " NCCL "
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def document(job: Job, names: dict[str, str]) -> str:
    """The data as JSON in which nothing can end the ``script`` element that holds it."""
    text = json.dumps(clean(_document(job, names)), ensure_ascii=True, separators=(",", ":"))
    return "".join(_UNSAFE.get(char, char) for char in text) if set(_UNSAFE) & set(text) else text


def _document(job: Job, names: dict[str, str]) -> dict[str, Any]:
    drawn = views(job)
    hosts = _hosts(job)
    incomplete = {comm.id: comm for comm in job.communicators}
    return {
        "hosts": [[host, ranks] for host, ranks in hosts.items()],
        "gpus": {rank: words for view in drawn for rank in view.gpus if (words := gpu_words(view, rank))},
        "looks": [[look.key, LETTERS[look.key], look.words, look.dashes] for look in LOOKS],
        **_paths(job.paths, names),
        "comms": [_comm(view, incomplete.get(view.name)) for view in drawn if view.rings or view.trees],
        "rules": sorted({finding.rule for finding in job.findings}),
        "culprits": [[words, ranks] for words, ranks in culprits(job).items()],
    }


def _paths(paths: Selection, names: dict[str, str]) -> dict[str, Any]:
    """The paths as columns; of the line of each, what its process prints before each message apart from the message."""
    kinds, sources, names_of_comms, heads, messages = Once(), Once(), Once(), Texts(), Texts()
    columns: dict[str, list[int]] = {name: [] for name in ("src", "dst", "kind", "source", "line")}
    number_of = cache(lambda kind, communicators: kinds.number(_kind(kind, communicators, names_of_comms)))
    rows = paths.values("src", "dst", "kind", "communicators")
    for (src, dst, *kind), line in zip(rows, paths.first_lines(), strict=True):
        source = sources.number(names.get(line.source, line.source))
        row = src, dst, number_of(*kind), source, line.line
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
        head, mark, message = line.text.partition(_MARK)
        heads.append(head)
        messages.append(mark + message)
    return {
        "paths": {name: packed(column) for name, column in columns.items()},
        "heads": heads.document(),
        "messages": messages.document(),
        "kinds": kinds.values,
        "kindComms": names_of_comms.values,
        "sources": sources.values,
    }


def culprits(job: Job) -> dict[str, list[int]]:
    """Return what the bad paths have in common, in words, with its ranks, which the matrix marks."""
    return {name(culprit): culprit.ranks for finding in job.findings for culprit in finding.culprits if culprit.ranks}


def _hosts(job: Job) -> dict[str, list[int]]:
    """The ranks of each host, hosts in the order of the job; ranks of unknown hosts under ``?``."""
    hosts = {host.name: list(host.ranks) for host in job.hosts if host.ranks}
    placed = {rank for ranks in hosts.values() for rank in ranks}
    named = job.paths.ends()
    if unknown := sorted(named - placed):
        hosts[UNKNOWN_HOST] = unknown
    return hosts


def look_of_kind(kind: PathKind) -> str:
    """The key of how a path looks."""
    return look_of(DrawnLink(0, 0, "connection", (), kind.detail, kind.transport, kind.gdr)).key


def _kind(path: PathKind, communicators: Iterable[str], comms: Once) -> dict[str, Any]:
    """Return what paths have in common; what is not there is left out."""
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
        "comms": [comms.number(comm) for comm in communicators],
        "verdict": path.verdict,
        "rules": path.rules,
        "also": [f"{way.detail} in {', '.join(way.communicators)}" for way in path.also],
        "guessed": path.guessed,
    }
    return {name: value for name, value in everything.items() if value not in (None, False, (), [])}


def _comm(view: View, comm: CommunicatorInfo | None) -> dict[str, Any]:
    cut = set(comm.incomplete_rings) if comm else set()
    ways = Once()
    edges = [(link.src, link.dst, ways.number([look_of(link).key, link.detail])) for link in view.links]
    return {
        "name": view.name,
        "title": title_of(view),
        "rings": [_ring(shape, cut) for shape in view.rings],
        "trees": [{"channels": lanes(shape.channels), "links": _columns(shape.links, 2)} for shape in view.trees],
        "ways": ways.values,
        "edges": _columns(edges, 3),
    }


def _ring(shape: DrawnShape, cut: set[int]) -> dict[str, Any]:
    ranks = packed(map(_rank_number, shape.ranks))
    return {"channels": lanes(shape.channels), "ranks": ranks, "cut": bool(cut & set(shape.channels))}


def _columns(rows: Iterable[Sequence[int | None]], width: int) -> list[str]:
    """Rows by their first column; the order of those that share it stays."""
    ordered = sorted((tuple(map(_rank_number, row)) for row in rows), key=itemgetter(0))
    return [packed(row[at] for row in ordered) for at in range(width)]


def _rank_number(rank: int | None) -> int:
    """A rank as a number; -1 where the log does not have it."""
    return -1 if rank is None else rank
