"""The tables of a store, and the rows that a judged job adds to them.

Each row has the job that it belongs to, and what most questions are about: when that began and whether it was bad. So a
table answers most questions alone.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pyarrow as pa

from nccl_inspect._version import __version__
from nccl_inspect.answers import machines, ranks
from nccl_inspect.model.document import clean
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job
from nccl_inspect.util.times import Moment, moment
from nccl_inspect.util.wording import ranges

SCHEMA = "nccl-inspect-fleet-store/1"
BAD = ("failed", "degraded")
"""Verdicts of bad jobs. All others are compared with these: of an ``unknown`` job nothing bad is known."""
_SHARED = "job:string start:timestamp verdict:string bad:bool"
_COLUMNS = {
    "job": "name:string end:timestamp clock:string ranks:int32 hosts:int32 gpus:int32 platform:string release:string "
    "cuda:string network:string plugin:string image:string rule:string category:string severity:string headline:string "
    "summary:string source:string line:int32 text:string runs:int32 logs:strings added:timestamp tool:string",
    "host": "host:string ranks:int32 gpus:int32 named:bool",
    "nic": "host:string nic:string network:string state:string paths_out:int32 paths_in:int32 gdr:string named:bool",
    "rank": "host:string rank:int32 gpu:int32 bus_id:string state:string named:bool",
    "path": "transport:string detail:string scope:string gdr:string path_verdict:string paths:int32 rules:strings",
    "finding": "rule:string category:string severity:string confidence:string root:bool headline:bool summary:string "
    "ranks:string hosts:strings culprits:strings source:string line:int32 text:string",
    "setting": "name:string value:string origin:string ranks:int32",
    "bandwidth": "operation:string type:string ranks:int32 size:int64 measured_gbps:double expected_low:double "
    "ratio:double bandwidth_verdict:string source:string line:int32",
}
TABLES = tuple(_COLUMNS)
"""The tables. A job counts once its row in the first one is written, which is done last."""
Tables = dict[str, "pa.Table"]
_TYPES = {
    "strings": pa.list_(pa.string()),
    "timestamp": pa.timestamp("us"),
    "bool": pa.bool_(),
    "double": pa.float64(),
}
_MOST_HOSTS = 64
"""Hosts and culprits that a finding lists; the rest is in the tables of hosts and NICs, which say who was named."""


@cache
def schema(table: str) -> Any:
    """Return the columns of a table."""
    pairs = [column.split(":") for column in f"{_SHARED} {_COLUMNS[table]}".split()]
    return pa.schema([(name, _TYPES.get(kind) or pa.type_for_alias(kind)) for name, kind in pairs])


def of_job(job: Job, ident: str, written: float, image: str | None) -> Tables:
    """Return the rows of a judged job."""
    begin, end, clock = _times(job, written)
    shared = {"job": ident, "start": begin, "verdict": job.verdict, "bad": job.verdict in BAD}
    headline = next((found for found in job.findings if job.head and found.rule == job.head.rule), None)
    worst = headline or next((found for found in job.findings if found.severity != "info"), None)
    led = {name: getattr(worst, name, None) for name in ("rule", "category", "severity", "summary")} | _quoted(worst)
    row = led | {
        **{"name": job.name, "end": end, "clock": clock, "ranks": job.world_size or len(job.ranks_seen) or None},
        **{"hosts": len(job.hosts), "gpus": sum(host.gpus for host in job.hosts), "platform": job.platform},
        **{"release": ", ".join(job.nccl_versions) or None, "cuda": ", ".join(job.cuda_versions) or None},
        **{"network": job.network.name, "plugin": job.network.plugin_version, "image": image or _image(job)},
        **{"headline": job.head.headline if job.head else None, "runs": len(job.earlier_runs) + 1},
        **{"logs": [source.name for source in job.sources][:_MOST_HOSTS], "tool": __version__},
        "added": datetime.now(UTC).replace(tzinfo=None),
    }
    named = _named(job)
    rows = {
        "job": [clean(row)],
        "host": [_row("host", h, host=h.name, ranks=len(h.ranks), named=h.name in named) for h in job.hosts],
        "nic": [
            _row("nic", n, nic=n.nic or f"NIC {n.nic_index}", gdr=_word(n.gdr), named=not named.isdisjoint(_names(n)))
            for n in machines.list_nics(job)
        ],
        "rank": [_row("rank", one, named=f"{one.host} GPU {one.gpu}" in named) for one in ranks.list_ranks(job)],
        "path": _paths(job),
        "finding": [
            _row("finding", f, headline=f is headline, ranks=ranges(f.ranks), hosts=f.hosts[:_MOST_HOSTS],
                 culprits=[f"{one.kind} {one.name}" for one in f.culprits[:_MOST_HOSTS]], **_quoted(f))
            for f in job.findings
        ],
        "setting": [
            _row("setting", one, origin=one.source, ranks=None if one.ranks is None else len(one.ranks))
            for one in job.environment
        ],
        "bandwidth": [
            _row("bandwidth", one, bandwidth_verdict=one.verdict, source=one.line and one.line.source,
                 line=one.line and one.line.line)
            for one in job.bandwidth
        ],
    }  # fmt: skip
    return {table: pa.Table.from_pylist([row | shared for row in rows[table]], schema(table)) for table in TABLES}


def _row(table: str, found: object, **own: Any) -> dict[str, Any]:
    """Return the columns of a table that something has, without control characters: a log may hold any bytes."""
    row: dict[str, Any] = clean({column: getattr(found, column, None) for column in schema(table).names} | own)
    return row


def _quoted(found: Finding | None) -> dict[str, Any]:
    """Return the first line that a finding quotes."""
    line = found.evidence[0] if found and found.evidence else None
    return {name: getattr(line, name, None) for name in ("source", "line", "text")}


def _names(nic: machines.NicRow) -> tuple[str, str]:
    return f"{nic.host} {nic.nic}", f"{nic.host} NIC {nic.nic_index}"


def _times(job: Job, written: float) -> tuple[datetime, datetime | None, str]:
    """Return when a job began and ended, and by what: the clock of its ``lines``, or the ``file``."""
    stamps = [stamp for progress in job.timeline for stamp in progress.stamps.values()]
    texts = [end(stamps).time for end in (min, max)] if stamps else []  # most logs: to read thousands takes its time
    if not stamps:
        texts += [line.time for line in job.last_lines if line.time]
        stages = [stage for comm in job.communicators for stage in comm.lifetime]
        texts += [time for stage in stages for time in (stage.first, stage.last) if time]
    moments = [found for text in dict.fromkeys(texts) if (found := moment(text)) and found.seconds > 0]
    if not moments:
        return _date(written), None, "file"
    seconds = [_in_year(found, written) for found in moments if found.clock == moments[0].clock]
    return _date(min(seconds)), _date(max(seconds)), "lines"


def _in_year(found: Moment, written: float) -> float:
    """Seconds since 1970; a time without a year is in the last one before its log was written."""
    latest = written + 86400
    for year in (_date(latest).year, _date(latest).year - 1) if found.clock == "day" else ():
        with suppress(ValueError):  # 29 February
            seconds = _date(found.seconds).replace(year=year, tzinfo=UTC).timestamp()
            if seconds <= latest:
                return seconds
    return found.seconds


def _date(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


def _image(job: Job) -> str | None:
    """The image of the containers that do the work, as manifests beside the log name it; of several, all of them."""
    found = {
        container.image for one in job.artifacts for pod in getattr(one.value, "pods", ()) for container in pod.workers
    }
    options = [option for one in job.artifacts for option in getattr(one.value, "options", ())]
    found |= {option.value for option in options if getattr(option, "name", "") == "container-image"}
    return ", ".join(sorted(filter(None, found))) or None


def _named(job: Job) -> set[str]:
    """Hosts, NICs and GPUs that findings single out: culprits, and hosts that are the fewer part of the job's."""
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


def _paths(job: Job) -> list[dict[str, Any]]:
    """Return one row for each class of paths."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for kind, number in job.paths.counted():
        counts[kind.transport, kind.detail, kind.scope, _word(kind.gdr), kind.verdict, tuple(kind.rules)] += number
    names = ("transport", "detail", "scope", "gdr", "path_verdict")
    return [{**dict(zip(names, key, strict=False)), "rules": list(key[-1]), "paths": n} for key, n in counts.items()]


def _word(value: object) -> str | None:
    return None if value is None else "yes" if value is True else "no" if value is False else str(value)
