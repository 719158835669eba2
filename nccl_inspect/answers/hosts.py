"""Hosts, worst first: their paths, findings, NICs, GPUs, versions and last lines."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from nccl_inspect.answers import Column, nics, place
from nccl_inspect.answers.last import latest
from nccl_inspect.event import types as events
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.inventory import Host, LastLine
from nccl_inspect.model.job import Job
from nccl_inspect.model.versions import cuda
from nccl_inspect.util.records import Frozen, Record, frozen, record

_WEIGHTS = {"error": 3, "warning": 2, "info": 1}


@frozen
class HostRow(Frozen):
    """A host."""

    host: str
    severity: str | None
    """The highest severity of the findings that name it; None without one."""
    paths_ok: int
    """Paths that begin or end there and are as good as expected."""
    paths_fallback: int
    paths_unknown: int
    findings: list[str]
    """Rules whose findings name the host or one of its ranks, worst first."""
    ranks: list[int]
    gpus: int
    """Number of distinct GPUs in the log."""
    nics_used: list[str]
    nics_idle: list[str]
    """NICs that NCCL lists and no connection line uses, although other NICs of the host are used."""
    nccl_versions: list[str]
    cuda_versions: list[str]
    """CUDA level of the driver."""
    last_time: str | None
    """Of its last line, as the line has it."""
    last_source: str | None
    last_line: int | None


RECORD = HostRow
COLUMNS = (
    Column("host", "host", is_host=True),
    Column("severity", "worst", goes=10),
    Column("paths_ok", "ok"),
    Column("paths_fallback", "fallback"),
    Column("paths_unknown", "unknown", goes=9),
    Column("findings", "findings", goes=8, least=16),
    Column("ranks", "ranks", goes=7, least=8),
    Column("gpus", "GPUs", goes=3),
    Column("nics_used", "NICs", goes=4, text=lambda row: str(len(row.nics_used)) if row.nics_used else "-"),
    Column("nics_idle", "idle NICs", goes=6, least=8),
    Column("nccl_versions", "NCCL", goes=2, folds=True),
    Column("cuda_versions", "driver", goes=1, folds=True),
    Column("last_time", "last time", goes=3),
    Column("last_line", "last line", goes=5, text=lambda row: place(row.last_source, row.last_line)),
)


@record
class _Gathered(Record):
    """Holds what is gathered of a host."""

    verdicts: dict[str, int] = field(default_factory=dict)
    nics: dict[str, list[str]] = field(default_factory=dict)
    """Names by state."""
    nccl: set[str] = field(default_factory=set)
    cuda: set[str] = field(default_factory=set)
    last: list[LastLine] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    blamed: int = 0
    """Findings whose culprit is this host, or some of its ranks only."""


def is_bad(row: HostRow) -> bool:
    """Whether a host is worse than it should be."""
    return row.severity == "error" or row.paths_fallback > 0


def rows(job: Job) -> list[HostRow]:
    """One for each host: those with the worst findings first, then by slower paths than expected."""
    by_host = {host.name: _Gathered() for host in job.hosts}
    _gather_paths(job, by_host)
    _gather_nics(job, by_host)
    _gather_versions(job, by_host)
    _gather_findings(job, by_host)
    for line in job.last_lines:
        if line.process.host in by_host:
            by_host[line.process.host].last.append(line)
    weighed = [(_row(host, by_host[host.name]), by_host[host.name].blamed) for host in job.hosts]
    return [row for row, _ in sorted(weighed, key=lambda entry: _badness(*entry), reverse=True)]


def _badness(row: HostRow, blamed: int) -> tuple[int, ...]:
    return _WEIGHTS.get(row.severity or "", 0), blamed, row.paths_fallback, len(row.nics_idle), row.paths_unknown


def _row(host: Host, gathered: _Gathered) -> HostRow:
    worst = max((finding.severity for finding in gathered.findings), key=_WEIGHTS.__getitem__, default=None)
    last = latest(gathered.last)
    in_order = sorted(gathered.findings, key=lambda finding: -_WEIGHTS[finding.severity])
    return HostRow(
        host=host.name,
        severity=worst,
        paths_ok=gathered.verdicts.get("ok", 0),
        paths_fallback=gathered.verdicts.get("fallback", 0),
        paths_unknown=gathered.verdicts.get("unknown", 0),
        findings=list(dict.fromkeys(finding.rule for finding in in_order)),
        ranks=host.ranks,
        gpus=host.gpus,
        nics_used=gathered.nics.get(nics.USED, []),
        nics_idle=gathered.nics.get(nics.IDLE, []),
        nccl_versions=sorted(gathered.nccl),
        cuda_versions=sorted(gathered.cuda),
        last_time=last.time if last else None,
        last_source=last.source if last else None,
        last_line=last.line if last else None,
    )


def _gather_paths(job: Job, by_host: dict[str, _Gathered]) -> None:
    """Count the paths of each host; paths within a host count once."""
    verdicts = Counter(job.paths.values("src_host", "dst_host", lambda kind: kind.verdict))
    for (src, dst, verdict), number in verdicts.items():
        for host in {src, dst}:
            if host in by_host:
                by_host[host].verdicts[verdict] = by_host[host].verdicts.get(verdict, 0) + number


def _gather_nics(job: Job, by_host: dict[str, _Gathered]) -> None:
    for row in nics.rows(job):
        if row.host in by_host:
            by_host[row.host].nics.setdefault(row.state, []).append(nics.name(row))


def _gather_versions(job: Job, by_host: dict[str, _Gathered]) -> None:
    for notice in job.notices:
        for host in notice.hosts:
            match notice.event:
                case events.NcclVersion(version=version) if host in by_host:
                    by_host[host].nccl.add(version)
                case events.CudaDriver(cuda_version=number) if host in by_host:
                    by_host[host].cuda.add(cuda(str(number)))


def _gather_findings(job: Job, by_host: dict[str, _Gathered]) -> None:
    for finding in job.findings:
        blamed = {culprit.name for culprit in finding.culprits if culprit.kind == "host"}
        ranks, named = set(finding.ranks), set(finding.hosts)
        for host in job.hosts:
            if host.name in named or not ranks.isdisjoint(host.ranks):
                by_host[host.name].findings.append(finding)
                by_host[host.name].blamed += host.name in blamed or bool(ranks and ranks.issubset(host.ranks))
