"""Metrics in Prometheus' text format, fit for the textfile collector of the node exporter.

``prometheus.toml`` says what each metric is, and has the names of its labels.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from nccl_inspect._version import __version__
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style
from nccl_inspect.report.tables import gdr_word
from nccl_inspect.util.text import escape_controls

SUFFIXES = ("prom",)
_DESCRIBED = Path(__file__).with_suffix(".toml")
_VERDICTS = ("ok", "degraded", "failed", "unknown")
_LINES = ("nccl", "typed", "unrecognised", "repaired", "damaged", "related")


def render(job: Job, style: Style) -> str:
    """Return the metrics as text; all are gauges that describe the job whose log was read last."""
    registry, described = CollectorRegistry(), tomllib.loads(_DESCRIBED.read_text(encoding="utf-8"))

    def add(name: str, values: float | Mapping[Any, float]) -> None:
        """Add a gauge with a value, or with one for each combination of labels."""
        says, *labels = described[name]
        gauge = Gauge(f"nccl_inspect_{name}", says, labels, registry=registry)
        for key, number in values.items() if isinstance(values, Mapping) else [((), values)]:
            (gauge.labels(*map(escape_controls, key)) if labels else gauge).set(number)

    add("info", {(__version__,): 1})
    add("verdict", {(name,): int(name == job.verdict) for name in _VERDICTS})
    if job.jobs:
        states = {(one.name, name): int(name == one.verdict) for one in job.jobs for name in _VERDICTS}
        add("job_verdict", states)
    add("findings", Counter((f.rule, f.category, f.severity, f.confidence) for f in job.findings))
    add("culprits", {(f.rule, one.kind, one.name): one.bad for f in job.findings for one in f.culprits})
    add("findings_suppressed", Counter((one.finding.rule, one.finding.severity) for one in job.suppressed))
    add("rules_run", len(job.rules))
    add("not_judged", Counter((question.rule,) for question in job.not_judged))
    add("unexplained_errors", len(job.unexplained))
    ways: Counter[tuple[str, ...]] = Counter()
    for kind, number in job.paths.count_kinds():
        gdr = "none" if kind.gdr is None else gdr_word(kind.gdr)
        ways[kind.transport, kind.detail, kind.scope, gdr, kind.verdict] += number
    add("paths", ways)
    measured = [((entry.operation, str(entry.ranks or "")), entry) for entry in job.bandwidth]
    add("bandwidth_gbps", {key: entry.measured_gbps for key, entry in measured})
    least = {key: entry.expected_low for key, entry in measured if entry.expected_low is not None}
    add("bandwidth_expected_gbps", least)
    is_low = {key: int(entry.verdict == "low") for key, entry in measured if entry.verdict != "unknown"}
    add("bandwidth_low", is_low)
    lines = {(kind,): sum(getattr(source, f"{kind}_lines") for source in job.sources) for kind in _LINES}
    add("log_lines", {("all",): sum(source.lines for source in job.sources), **lines})
    add("sources_unread", sum(bool(source.problem) for source in job.sources))
    add("partial", int(job.partial))
    if job.world_size is not None:
        add("world_size", job.world_size)
    add("ranks_seen", len(job.ranks_seen))
    add("hosts", len(job.hosts))
    add("communicators", len(job.communicators))
    versions = [("nccl", text) for text in job.nccl_versions] + [("cuda", text) for text in job.cuda_versions]
    add("software_info", dict.fromkeys(versions, 1))
    return generate_latest(registry).decode()
