"""Metrics in Prometheus' text format, fit for the textfile collector of the node exporter."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from nccl_inspect.report import Style
from nccl_inspect.report.prometheus import Metrics

SUFFIXES = ("prom",)
_SUSPECT = {
    "bad": "Bad jobs with a suspect: a host, NIC, GPU, image, release or setting.",
    "jobs": "Jobs with a suspect.",
    "ratio": "How many times as many of them are bad as of others of like size and day.",
}


def render(document: dict[str, Any], style: Style) -> str:
    """Return the metrics; all are gauges that describe the jobs of the store."""
    metrics = Metrics()
    verdicts, day = document["verdicts"], (document["days"] or [{}])[-1]
    newest = datetime.fromisoformat(document["last"] or "1970-01-01").replace(tzinfo=UTC).timestamp()
    causes = [((one["rule"], one["category"] or ""), one["bad"]) for one in document["causes"]]
    changes = [((one["kind"], one["name"], one["before"]["name"] or ""), one["rate"]) for one in document["changes"]]
    for name, says, labels, rows in (
        ("jobs", "Jobs by verdict.", ("verdict",), [((one,), number) for one, number in verdicts.items()]),
        ("newest_day_jobs", "Jobs of the newest day.", ("verdict",), [((one,), day.get(one, 0)) for one in verdicts]),
        ("newest_job_timestamp_seconds", "When the newest job began.", (), [((), newest)]),
        ("hosts", "Hosts of these jobs.", (), [((), document["hosts"])]),
        ("bad_ratio", "Part of the jobs that are bad, with the bounds of its interval.", ("bound",),
         [((bound,), document["bad"][bound]) for bound in ("rate", "low", "high")]),
        ("cause_jobs", "Bad jobs by what they are bad by first.", ("rule", "category"), causes),
        ("change_bad_ratio", "Part of the jobs that are bad since a change for the worse.",
         ("kind", "name", "before"), changes),
    ):  # fmt: skip
        metrics.add(f"fleet_{name}", says, labels, rows)
    for field, says in _SUSPECT.items():
        rows = [((one["kind"], one["name"], one["host"] or ""), one[field]) for one in document["suspects"]]
        metrics.add(f"fleet_suspect_{field}", says, ("kind", "name", "host"), rows)
    return metrics.text()
