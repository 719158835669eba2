"""Metrics in Prometheus' text format, fit for the textfile collector of the node exporter."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nccl_inspect.report import Style
from nccl_inspect.report.prometheus import Metrics

SUFFIXES = ("prom",)
_DESCRIBED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def render(document: dict[str, Any], style: Style) -> str:
    """Return the metrics; all are gauges that describe the jobs of the store."""
    verdicts, day, suspects = document["verdicts"], (document["days"] or [{}])[-1], document["suspects"]
    newest = datetime.fromisoformat(document["last"] or "1970-01-01").replace(tzinfo=UTC).timestamp()
    keys = [(one["kind"], one["name"], one["host"] or "") for one in suspects]
    rows: dict[str, Any] = {
        "jobs": [((one,), number) for one, number in verdicts.items()],
        "newest_day_jobs": [((one,), day.get(one, 0)) for one in verdicts],
        "newest_job_timestamp_seconds": [((), newest)],
        "undated_jobs": [((), document["undated"])],
        "hosts": [((), document["hosts"])],
        "bad_ratio": [((bound,), document["bad"][bound]) for bound in ("rate", "low", "high")],
        "cause_jobs": [((one["rule"], one["category"] or ""), one["bad"]) for one in document["causes"]],
        "change_bad_ratio": [
            ((one["kind"], one["name"], one["before"]["name"] or ""), one["rate"]) for one in document["changes"]
        ],
        **{f"suspect_{name}": [(key, one[name]) for key, one in zip(keys, suspects, strict=True)]
           for name in ("bad", "jobs", "ratio")},
    }  # fmt: skip
    metrics = Metrics()
    for name, (says, *labels) in _DESCRIBED.items():
        metrics.add(f"fleet_{name}", says, labels, rows[name])
    return metrics.text()
