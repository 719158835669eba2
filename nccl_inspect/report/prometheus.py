"""Metrics in Prometheus' text format, fit for the textfile collector of the node exporter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from nccl_inspect._version import __version__
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style
from nccl_inspect.report.tables import gdr_word
from nccl_inspect.util.text import escape_controls

SUFFIXES = ("prom",)
_VERDICTS = ("ok", "degraded", "failed", "unknown")
WORLD_SIZE = "Ranks of the job."
RANKS_SEEN = "Ranks in the log."
_LINES = ("nccl", "typed", "unrecognised", "repaired", "damaged", "related")


def render(job: Job, style: Style) -> str:
    """Return the metrics as text; all are gauges that describe the job whose log was read last."""
    return collect_metrics(job).text()


def collect_metrics(job: Job) -> Metrics:
    """Return the metrics of a job, which others may be added to."""
    metrics = Metrics()
    metrics.add("info", "Version of nccl-inspect that read the log.", ("version",), [((__version__,), 1)])
    metrics.verdict(job.verdict)
    if job.jobs:
        states = [((standing.name, name), int(name == standing.verdict)) for standing in job.jobs for name in _VERDICTS]
        says = "1 for the verdict of each job of the input, 0 for the others; all other metrics are of the worst job."
        metrics.add("job_verdict", says, ("job", "verdict"), states)
    findings = Counter((f.rule, f.category, f.severity, f.confidence) for f in job.findings)
    names = ("rule", "category", "severity", "confidence")
    metrics.add("findings", "Findings of each rule.", names, findings.items())
    bad = [((f.rule, culprit.kind, culprit.name), culprit.bad) for f in job.findings for culprit in f.culprits]
    says = "Bad paths or ranks of a finding that share a host, GPU, NIC, … which good ones do not use."
    metrics.add("culprits", says, ("rule", "kind", "name"), bad)
    accepted = Counter((entry.finding.rule, entry.finding.severity) for entry in job.suppressed)
    metrics.add("findings_suppressed", "Accepted findings.", ("rule", "severity"), accepted.items())
    metrics.add("rules_run", "Rules that judged the log.", (), [((), len(job.rules))])
    unjudged = Counter((question.rule,) for question in job.not_judged)
    metrics.add("not_judged", "Questions that the log leaves open.", ("rule",), unjudged.items())
    metrics.add("unexplained_errors", "Errors that no rule explains.", (), [((), len(job.unexplained))])
    ways: Counter[tuple[str, ...]] = Counter()
    for kind, number in job.paths.count_kinds():
        gdr = "none" if kind.gdr is None else gdr_word(kind.gdr)
        ways[kind.transport, kind.detail, kind.scope, gdr, kind.verdict] += number
    kinds = ("transport", "path", "scope", "gdr", "verdict")
    metrics.add("paths", "Directed rank pairs by path.", kinds, ways.items())
    says = "Best bus bandwidth that a benchmark in the log measured, in 1e9 bytes per second."
    measured = [((entry.operation, str(entry.ranks or "")), entry) for entry in job.bandwidth]
    of_what = ("operation", "ranks")
    metrics.add("bandwidth_gbps", says, of_what, [(labels, entry.measured_gbps) for labels, entry in measured])
    least = [(labels, entry.expected_low) for labels, entry in measured if entry.expected_low is not None]
    metrics.add("bandwidth_expected_gbps", "The least that such hardware gives.", of_what, least)
    is_low = [(labels, int(entry.verdict == "low")) for labels, entry in measured if entry.verdict != "unknown"]
    metrics.add("bandwidth_low", "1 if a measured bandwidth is lower than expected, 0 if not.", of_what, is_low)
    lines = [((kind,), sum(getattr(s, f"{kind}_lines") for s in job.sources)) for kind in _LINES]
    every = (("all",), sum(source.lines for source in job.sources))
    metrics.add("log_lines", "Lines of the log by kind.", ("kind",), [every, *lines])
    unread = sum(bool(source.problem) for source in job.sources)
    metrics.add("sources_unread", "Inputs that could not be read completely.", (), [((), unread)])
    metrics.add("partial", "1 if reading was interrupted.", (), [((), int(job.partial))])
    if job.world_size is not None:
        metrics.add("world_size", WORLD_SIZE, (), [((), job.world_size)])
    metrics.add("ranks_seen", RANKS_SEEN, (), [((), len(job.ranks_seen))])
    metrics.add("hosts", "Hosts in the log.", (), [((), len(job.hosts))])
    metrics.add("communicators", "Communicators in the log.", (), [((), len(job.communicators))])
    versions = [(("nccl", text), 1) for text in job.nccl_versions] + [(("cuda", text), 1) for text in job.cuda_versions]
    metrics.add("software_info", "Versions in the log.", ("name", "version"), versions)
    return metrics


class Metrics:
    """Gauges in a registry of their own: without the metrics of this process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def add(self, name: str, says: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], float]]) -> None:
        """Add a gauge with a value for each combination of labels."""
        gauge = Gauge(f"nccl_inspect_{name}", says, labels, registry=self.registry)
        for values, number in rows:
            (gauge.labels(*map(escape_controls, values)) if labels else gauge).set(number)

    def verdict(self, verdict: str) -> None:
        """Add a gauge for each verdict."""
        rows = [((name,), int(name == verdict)) for name in _VERDICTS]
        self.add("verdict", "1 for the verdict of the job, 0 for the others.", ("verdict",), rows)

    def text(self) -> str:
        """Return the text format."""
        return generate_latest(self.registry).decode()
