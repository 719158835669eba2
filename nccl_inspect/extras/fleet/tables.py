"""The tables of a store, and the rows that a judged job adds to them.

Each row has the job that it belongs to, and what most questions are about: when that began and whether it was bad. So a
table answers most questions alone.
"""

from __future__ import annotations

import time
import tomllib
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from nccl_inspect._version import __version__
from nccl_inspect.answers import rows as answers
from nccl_inspect.model.document import clean
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job
from nccl_inspect.util.times import Moment, moment
from nccl_inspect.util.wording import ranges

SCHEMA = "nccl-inspect-fleet-store/1"
BAD = ("failed", "degraded")
"""Verdicts of bad jobs. All others are compared with these: of an ``unknown`` job nothing bad is known."""
DESCRIBED: dict[str, Any] = tomllib.loads(Path(__file__).with_name("tables.toml").read_text(encoding="utf-8"))
TABLES = tuple(name for name in DESCRIBED if name != "shared")
"""The tables. A job counts once its row in the first one is written, which is done last."""
Tables = dict[str, "pa.Table"]
_TYPES = {"strings": pa.list_(pa.string()), "timestamp": pa.timestamp("us"), "bool": pa.bool_(), "double": pa.float64()}
_MOST_HOSTS = 64
"""Hosts and culprits that a finding lists; the rest is in the tables of hosts and NICs, which say who was named."""


@cache
def schema(table: str) -> Any:
    """Return the columns of a table."""
    columns = [*DESCRIBED["shared"]["columns"], *DESCRIBED[table]["columns"]]
    return pa.schema([(name, _TYPES.get(kind) or pa.type_for_alias(kind)) for name, kind, _ in columns])


def make_rows(job: Job, ident: str, written: float | None, image: str | None) -> Tables:
    """Return the rows of a judged job; its log was written at a time in seconds since 1970, or None."""
    begin, end, clock = _find_times(job, written)
    shared = {"job": ident, "start": begin, "verdict": job.verdict, "bad": job.verdict in BAD}
    headline = next((found for found in job.findings if job.head and found.rule == job.head.rule), None)
    worst = headline or next((found for found in job.findings if found.severity != "info"), None)
    named, network, beside = _list_named(job), job.network, [one.value for one in job.artifacts]
    # Images of the containers that do the work, as manifests beside the log name them.
    images = {container.image for one in beside for pod in getattr(one, "pods", ()) for container in pod.workers}
    options = [option for one in beside for option in getattr(one, "options", ())]
    images |= {option.value for option in options if getattr(option, "name", "") == "container-image"}
    named_images = ", ".join(sorted(filter(None, images))) or None
    counts: Counter[tuple[Any, ...]] = Counter()
    for kind, number in job.paths.count_kinds():
        counts[kind.transport, kind.detail, kind.scope, _word(kind.gdr), kind.verdict, tuple(kind.rules)] += number
    of_paths = ("transport", "detail", "scope", "gdr", "path_verdict", "rules", "paths")
    rows = {
        "job": _pick(
            "job", [worst], lambda _: {
                **_quote(worst), "name": job.name, "end": end, "clock": clock, "runs": len(job.earlier_runs) + 1,
                "ranks": job.world_size or len(job.ranks_seen) or None, "hosts": len(job.hosts),
                "gpus": sum(host.gpus for host in job.hosts), "platform": job.platform,
                "release": ", ".join(job.nccl_versions) or None, "cuda": ", ".join(job.cuda_versions) or None,
                "network": network.name, "plugin": network.plugin_version, "image": image or named_images,
                "headline": job.head.headline if job.head else None, "tool": __version__,
                "logs": [source.name for source in job.sources][:_MOST_HOSTS],
                "added": datetime.now(UTC).replace(tzinfo=None),
            },
        ),
        "host": _pick(
            "host", job.hosts, lambda h: {"host": h.name, "ranks": len(h.ranks), "named": h.name in named}
        ),
        "nic": _pick(
            "nic", answers.list_nics(job), lambda nic: {
                "nic": nic.nic or f"NIC {nic.nic_index}", "gdr": _word(nic.gdr),
                "named": not named.isdisjoint((f"{nic.host} {nic.nic}", f"{nic.host} NIC {nic.nic_index}")),
            },
        ),
        "rank": _pick("rank", answers.list_ranks(job), lambda one: {"named": f"{one.host} GPU {one.gpu}" in named}),
        "path": [dict(zip(of_paths, (*key, number), strict=True)) for key, number in counts.items()],
        "finding": _pick(
            "finding", job.findings, lambda found: {
                **_quote(found), "headline": found is headline, "ranks": ranges(found.ranks),
                "hosts": found.hosts[:_MOST_HOSTS],
                "culprits": [f"{one.kind} {one.name}" for one in found.culprits[:_MOST_HOSTS]],
            },
        ),
        "setting": _pick(
            "setting", job.environment,
            lambda one: {"origin": one.source, "ranks": None if one.ranks is None else len(one.ranks)},
        ),
        "bandwidth": _pick(
            "bandwidth", job.bandwidth, lambda one: {
                "bandwidth_verdict": one.verdict, "source": one.line and one.line.source,
                "line": one.line and one.line.line,
            },
        ),
    }  # fmt: skip
    return {table: pa.Table.from_pylist([row | shared for row in rows[table]], schema(table)) for table in TABLES}


def _pick(table: str, entries: Iterable[Any], others: Any) -> list[dict[str, Any]]:
    """Return the columns of a table that entries have, and others, without control characters: a log may hold any."""
    names = schema(table).names
    return [clean({name: getattr(entry, name, None) for name in names} | others(entry)) for entry in entries]


def _quote(found: Finding | None) -> dict[str, Any]:
    line = found.evidence[0] if found and found.evidence else None
    return {name: getattr(line, name, None) for name in ("source", "line", "text")}


def _find_times(job: Job, written: float | None) -> tuple[datetime | None, datetime | None, str | None]:
    stamps = [stamp for progress in job.timeline for stamp in progress.stamps.values()]
    texts = [end(stamps).time for end in (min, max)] if stamps else []  # most logs: to read thousands takes its time
    if not stamps:
        texts += filter(None, (*(one.time for one in job.last_lines), *(one.earliest.time for one in job.notices)))
        stages = [stage for comm in job.communicators for stage in comm.lifetime]
        texts += [time for stage in stages for time in (stage.first, stage.last) if time]
    moments = [found for text in dict.fromkeys(texts) if (found := moment(text)) and found.seconds > 0]
    if moments:
        seconds = [_set_year(found, written or time.time()) for found in moments if found.clock == moments[0].clock]
        return _date(min(seconds)), _date(max(seconds)), "lines"
    return (None, None, None) if written is None else (_date(written), None, "file")


def _set_year(found: Moment, written: float) -> float:
    """Return seconds since 1970; a time without a year is in the last one before its log was written."""
    latest = written + 86400
    for year in (_date(latest).year, _date(latest).year - 1) if found.clock == "day" else ():
        with suppress(ValueError):  # 29 February
            seconds = _date(found.seconds).replace(year=year, tzinfo=UTC).timestamp()
            if seconds <= latest:
                return seconds
    return found.seconds


def _date(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


def _list_named(job: Job) -> set[str]:
    """Return hosts, NICs and GPUs that findings single out: culprits, and hosts that are at most half of all."""
    named: set[str] = set()
    hosts = {host.name for host in job.hosts}
    places = {
        rank: (host.name, f"{host.name} GPU {job.gpus[rank].nvml_dev}" if rank in job.gpus else host.name)
        for host in job.hosts
        for rank in host.ranks
    }
    for finding in job.findings:
        if finding.severity == "info" or not finding.root:
            continue
        for culprit in finding.culprits:
            if culprit.kind in ("host", "nic", "gpu"):
                named |= {culprit.name, *(host for host in hosts if culprit.name.startswith(f"{host} "))}
            elif culprit.kind == "rank":
                named |= {where for rank in culprit.ranks for where in places.get(rank, ())}
        if 2 * len(finding.hosts) <= len(hosts):
            named |= set(finding.hosts)
    return named


def _word(value: object) -> str | None:
    return None if value is None else "yes" if value is True else "no" if value is False else str(value)
