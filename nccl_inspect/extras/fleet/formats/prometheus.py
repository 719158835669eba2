"""Metrics in Prometheus' text format, fit for the textfile collector of the node exporter."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from nccl_inspect.report import Style
from nccl_inspect.report.prometheus import Metrics

SUFFIXES = ("prom",)
_SUSPECT = ("kind", "name", "host")


def render(document: dict[str, Any], style: Style) -> str:
    """The metrics; all are gauges that describe the jobs of the store."""
    metrics = Metrics()
    metrics.add(
        "fleet_jobs", "Jobs by verdict.", ("verdict",), [((name,), n) for name, n in document["verdicts"].items()]
    )
    metrics.add("fleet_hosts", "Hosts of these jobs.", (), [((), document["hosts"])])
    bounds = [((bound,), document["bad"][bound]) for bound in ("rate", "low", "high")]
    metrics.add(
        "fleet_bad_ratio", "Part of the jobs that are bad, with the bounds of its interval.", ("bound",), bounds
    )
    if document["last"]:
        newest = datetime.fromisoformat(document["last"]).replace(tzinfo=UTC).timestamp()
        metrics.add("fleet_newest_job_timestamp_seconds", "When the newest job began.", (), [((), newest)])
    day = document["days"][-1] if document["days"] else None
    names = [name for name in document["verdicts"] if day]
    metrics.add(
        "fleet_newest_day_jobs",
        "Jobs of the newest day.",
        ("verdict",),
        [((name,), (day or {})[name]) for name in names],
    )
    causes = [((cause["rule"], cause["category"] or ""), cause["bad"]) for cause in document["causes"]]
    metrics.add("fleet_cause_jobs", "Bad jobs by what they are bad by first.", ("rule", "category"), causes)
    suspects = {(one["kind"], one["name"], one["host"] or ""): one for one in document["suspects"]}
    for field, says in (
        ("bad", "Bad jobs with a suspect: a host, NIC, GPU, image, release or setting."),
        ("jobs", "Jobs with a suspect."),
        ("ratio", "How many times as many of them are bad as of others of like size and day."),
    ):
        metrics.add(
            f"fleet_suspect_{field}", says, _SUSPECT, [(labels, one[field]) for labels, one in suspects.items()]
        )
    changes = [((one["kind"], one["name"], one["before"]["name"]), one["rate"]) for one in document["changes"]]
    metrics.add(
        "fleet_change_bad_ratio",
        "Part of the jobs that are bad since a change for the worse.",
        ("kind", "name", "before"),
        changes,
    )
    return metrics.text()
