"""The job as the JSON document ``nccl-inspect/1``; its JSON Schema is ``nccl_inspect/schema/nccl-inspect-1.json``."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path as File
from types import NoneType
from typing import TYPE_CHECKING, Any

from nccl_inspect.grammar import engine
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, Standing
from nccl_inspect.model.job import CommunicatorInfo, Job, Path, PathKind, Selection
from nccl_inspect.util.records import pick_fields
from nccl_inspect.util.text import escape_controls

if TYPE_CHECKING:
    import pandas

SCHEMA = "nccl-inspect/1"
_NO_TEXT = frozenset((int, float, bool, NoneType))
_JOB = ("world_size", "ranks_seen", "rank_space", "dialects", "nccl_versions", "cuda_versions", "platform")
_COMMUNICATOR = ("id", "parent", "nranks", "ranks", "hosts", "channels", "rings", "trees", "state")
_WAY = ("scope", "transport", "detail", "gdr", "nic", "nic_index", "pxn_rank", "shared", "channels")
_STANDING = ("number", "name", "verdict", "reason", "ranks", "hosts", "nccl_versions")
_MEASURED = (
    *("operation", "type", "ranks", "size", "measured_gbps", "expected_low", "expected_high", "expected_source"),
    *("ratio", "verdict", "tool", "what", "reason", "nodes", "falls", "wrong"),
)
_FINDING = ("rule", "category", "severity", "confidence", "root", "because", "action", "summary", "cause", "impact")


def to_dict(job: Job) -> dict[str, Any]:
    """Return the document: plain lists, dictionaries, printable text and numbers."""
    return {name: list(entries(value)) if isinstance(value, Selection) else value for name, value in parts(job)}


def parts(job: Job, only: Collection[str] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the fields of the document by name, all or some; ``paths`` as they are in the job, for they are many."""
    for name, value in _document(job).items():
        if not only or name in only:
            yield name, value if isinstance(value, Selection) else clean(value)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the document."""
    text = File(__file__).parents[1].joinpath("schema", "nccl-inspect-1.json").read_text(encoding="utf-8")
    published: dict[str, Any] = json.loads(text)
    return published


def fields() -> list[str]:
    """Return the names of the fields that the document can have."""
    return list(schema()["properties"])


def clean(value: Any, text: Callable[[str], str] = escape_controls) -> Any:
    """Return the same with all text made printable: a log may hold any bytes, a host name, too."""
    if isinstance(value, str):
        return value if value.isascii() and value.isprintable() else text(value)
    if isinstance(value, list | tuple):
        return list(value) if _NO_TEXT.issuperset(map(type, value)) else [clean(item, text) for item in value]
    if isinstance(value, dict):
        return {clean(key, text): clean(item, text) for key, item in value.items()}
    return value


def _document(job: Job) -> dict[str, Any]:
    failure, waiting = job.first_failure, job.waiting
    return {
        "schema": SCHEMA,
        "verdict": job.verdict,
        "head": asdict(job.head) if job.head else None,
        **({"jobs": [standing_to_dict(standing) for standing in job.jobs]} if job.jobs else {}),
        "config": job.config,
        "sources": [asdict(source) for source in job.sources],
        "job": {
            **pick_fields(job, *_JOB),
            "hosts": [asdict(host) for host in job.hosts],
            "network": asdict(job.network),
            "environment": [pick_fields(setting, "name", "value", "source", "ranks") for setting in job.environment],
            "unplaced_lines": job.unplaced_lines,
            "unplaced_paths": [{"path": path, "lines": lines} for path, lines in job.unplaced_paths.items()],
            **pick_fields(job, "partial", "excerpt", "earlier_runs"),
        },
        "communicators": [pick_fields(comm, *_COMMUNICATOR) | traits(comm) for comm in job.communicators],
        "paths": job.paths,
        "findings": [finding_to_dict(finding) for finding in job.findings],
        "story": [
            {
                **pick_fields(entry, "what", "ranks", "hosts"),
                **evidence_to_dict(entry.line),
                **pick_fields(entry, "count", "because", "rule"),
            }
            for entry in job.story
        ],
        # The age of a file would make the documents of one log differ.
        "waiting": waiting
        and {
            **asdict(waiting),
            "since": evidence_to_dict(waiting.since) if waiting.since else None,
            "age": waiting.age if job.quiet is not None else None,
        },
        "first_failure": failure and {**asdict(failure), "evidence": evidence_to_dict(failure.evidence)},
        "suppressed": [{"reason": entry.reason, "finding": finding_to_dict(entry.finding)} for entry in job.suppressed],
        "bandwidth": [
            {
                **pick_fields(entry, *_MEASURED),
                "source": entry.line.source if entry.line else None,
                "line": entry.line.line if entry.line else None,
                "sizes": [pick_fields(row, "size", "gbps", "lower") for row in entry.sizes],
            }
            for entry in job.bandwidth
        ],
        "training": [
            {**pick_fields(entry, "what", "median", "count"), **pick_fields(entry.line, "source", "line")}
            for entry in job.training
        ],
        "not_judged": [pick_fields(question, "rule", "reason", "needs") for question in job.not_judged],
        "unexplained": [
            {
                "message": notice.message,
                "says": engine.find_details(notice.event.dialect, notice.event.production).says if notice.event else "",
                **pick_fields(notice, "count", "ranks", "hosts"),
                "evidence": [evidence_to_dict(line) for line in notice.evidence],
            }
            for notice in job.unexplained
        ],
        "evidence": [pick_fields(entry, "name", "kind", "host", "problem") for entry in job.artifacts],
        "passed_over": [asdict(entry) for entry in job.passed_over],
        "unrecognised": [
            {"template": u.template, "count": u.count, "example": evidence_to_dict(u.example)} for u in job.unrecognised
        ],
    }


def standing_to_dict(standing: Standing) -> dict[str, Any]:
    """Return one entry of ``jobs``."""
    finding = standing.finding
    return {
        **pick_fields(standing, *_STANDING),
        "first": {"source": standing.first.source, "line": standing.first.line, "time": standing.first.text or None},
        "last": {"source": standing.last.source, "line": standing.last.line, "time": standing.last.text or None},
        "finding": finding
        and {
            **pick_fields(finding, "rule", "severity", "confidence", "summary"),
            "culprits": [asdict(culprit) for culprit in finding.culprits],
        },
    }


def traits(comm: CommunicatorInfo) -> dict[str, Any]:
    """Return what is known of a communicator besides its ranks and what joins them."""
    return {
        "color": comm.color,
        "group": comm.group,
        "parallelism": asdict(comm.parallelism) if comm.parallelism else None,
        "lifetime": [asdict(stage) for stage in comm.lifetime],
        **pick_fields(comm, "algorithms", "collnet", "inconsistent"),
    }


ENDS = ("src", "dst", "src_host", "dst_host")
"""What an entry of ``paths`` begins with; :func:`way`, the communicators and :func:`judgement` follow."""


def entries(paths: Selection) -> Iterator[dict[str, Any]]:
    """Yield the entries of ``paths``, each with lists of its own."""
    ways = {kind: clean(way(kind)) for kind in paths.kinds}
    judgements = {kind: clean(judgement(kind)) for kind in paths.kinds}
    for *ends, kind, communicators in paths.values(*ENDS, "kind", "communicators"):
        values = dict(zip(ENDS, map(clean, ends), strict=True)) | deepcopy(ways[kind])
        yield values | {"communicators": clean(communicators)} | deepcopy(judgements[kind])


def way(kind: Path | PathKind) -> dict[str, Any]:
    """Return the document of a path."""
    return pick_fields(kind, *_WAY)


def judgement(kind: Path | PathKind) -> dict[str, Any]:
    """Return a path with its verdict and evidence."""
    return {
        **pick_fields(kind, "verdict", "rules", "guessed", "expected"),
        "also": [asdict(also) for also in kind.also],
        "src_nic": kind.nic_at("send"),
        "dst_nic": kind.nic_at("receive"),
    }


def finding_to_dict(finding: Finding) -> dict[str, Any]:
    """Return one entry of ``findings``."""
    return {
        **pick_fields(finding, *_FINDING),
        "references": [asdict(reference) for reference in finding.references],
        **pick_fields(finding, "fix", "ranks", "hosts"),
        "evidence": [evidence_to_dict(evidence) for evidence in finding.evidence],
        "clue": finding.clue,
        "confirm": finding.confirm or None,
        "culprits": [asdict(culprit) for culprit in finding.culprits],
    }


def evidence_to_dict(evidence: Evidence) -> dict[str, Any]:
    """Return one line of the log."""
    return pick_fields(evidence, "source", "line", "text")


NAMES = ("paths", "findings", "communicators", "environment", "hosts", "sources", "not_judged")
"""The lists that are tables."""


def frame(job: Job, what: str) -> pandas.DataFrame:
    """Return one list of the document as a table; an empty one has its columns, too.

    Raises:
        ValueError: the document has no such list.
    """
    if what not in NAMES:
        raise ValueError(f"no table '{what}': there are {', '.join(NAMES)}")
    document = to_dict(job)
    return make_frame(what, document[what] if what in document else document["job"][what])


def make_frame(what: str, rows: Iterable[dict[str, Any]]) -> pandas.DataFrame:
    """Return the entries of a list with the columns of the document."""
    import pandas  # for notebooks

    whole = schema()  # which has the columns of lists
    document = whole["properties"]
    lists = {**_resolve_reference(whole, document["job"])["properties"], **document}
    return pandas.DataFrame(rows, columns=list(_resolve_reference(whole, lists[what]["items"])["properties"]))


def _resolve_reference(whole: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in part:
        part = whole["$defs"][part["$ref"].rpartition("/")[2]]
    return part
