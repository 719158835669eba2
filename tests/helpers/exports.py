"""Logs as log explorers, collectors and clouds hand them out: each kind writes lines with their times.

After the documentation of the tools and their real output; names are made up.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

BEGIN = datetime(2026, 11, 20, 23, 13, 7, 71_868, tzinfo=UTC)


class Said(NamedTuple):
    """A line, and when it was printed."""

    when: datetime
    text: str

    @property
    def iso(self) -> str:
        return self.when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    @property
    def plain_line(self) -> str:
        return self.when.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]

    @property
    def thousandths(self) -> int:
        return int(self.when.timestamp() * 1000)

    @property
    def milliardths(self) -> str:
        return f"{self.thousandths}071868"


Export = Callable[[Sequence[Said]], bytes]


def make_said(lines: Iterable[bytes], step: float = 0.0013) -> list[Said]:
    """Return lines with times, ``step`` seconds apart."""
    return [
        Said(BEGIN + timedelta(seconds=step * index), line.decode("utf-8", "surrogateescape"))
        for index, line in enumerate(lines)
    ]


def dump(document: Any, **how: Any) -> bytes:
    return json.dumps(document, **how).encode() + b"\n"


def lines(record: Callable[[Said], Any]) -> Export:
    """Return JSON, one record in each line."""
    return lambda rows: b"".join(dump(record(row)) for row in rows)


def document(record: Callable[[Said], Any], around: Callable[[list[Any]], Any] = list) -> dict[str, Export]:
    """Return a JSON document, in one line and over many."""
    return {
        "": lambda rows: dump(around([record(row) for row in rows])),
        "-pretty": lambda rows: dump(around([record(row) for row in rows]), indent=2),
    }


def table(names: Sequence[str], row: Callable[[Said], Sequence[object]], **how: Any) -> Export:
    """Return CSV with a line of names."""

    def export(rows: Sequence[Said]) -> bytes:
        text = io.StringIO()
        writer = csv.writer(text, **how)
        writer.writerow(names)
        writer.writerows(map(row, rows))
        return text.getvalue().encode("utf-8", "surrogateescape")

    return export


def add_prefixes(front: Callable[[Said], str]) -> Export:
    return lambda rows: b"".join(f"{front(row)}{row.text}\n".encode("utf-8", "surrogateescape") for row in rows)


def gcp(row: Said) -> dict[str, Any]:
    return {
        "insertId": "1k2j3",
        "labels": {"k8s-pod/app": "llama"},
        "logName": "projects/p/logs/stdout",
        "receiveTimestamp": row.iso,
        "resource": {"labels": {"cluster_name": "c", "pod_name": "llama-0"}, "type": "k8s_container"},
        "severity": "INFO",
        "textPayload": row.text + "\n",
        "timestamp": row.iso,
    }


def cloudwatch(row: Said) -> dict[str, Any]:
    return {"logStreamName": "train/main/4f1c", "timestamp": row.thousandths, "message": row.text, "eventId": "3" * 56}


def insights(row: Said) -> list[dict[str, str]]:
    return [{"field": "@timestamp", "value": row.plain_line}, {"field": "@message", "value": row.text}]


def elastic(row: Said) -> dict[str, Any]:
    source = {"@timestamp": row.iso, "message": row.text, "kubernetes": {"pod": {"name": "llama-0"}}}
    return {"_index": "logs", "_id": "1", "_score": None, "_source": source, "sort": [1, 2]}


def hits(found: list[Any]) -> dict[str, Any]:
    return {"took": 3, "_shards": {"total": 1, "failures": []}, "hits": {"total": {"value": 9}, "hits": found}}


def loki(found: list[Any]) -> dict[str, Any]:
    stream = {"stream": {"pod": "llama-0", "container": "trainer"}, "values": found}
    return {"status": "success", "data": {"resultType": "streams", "result": [stream], "stats": {"ingester": {}}}}


def azure(found: list[Any]) -> dict[str, Any]:
    names = [{"name": name, "type": "string"} for name in ("TimeGenerated", "PodName", "LogMessage")]
    return {"tables": [{"name": "PrimaryResult", "columns": names, "rows": found}]}


def datadog(row: Said) -> dict[str, Any]:
    return {"id": "A1", "type": "log", "attributes": {"timestamp": row.iso, "host": "gpu-1", "message": row.text}}


def unknown(row: Said) -> dict[str, Any]:
    return {"meta": {"seq": 1, "at": row.iso}, "entry": {"what": row.text}}


def name_lines(name: str, exports: dict[str, Export]) -> dict[str, Export]:
    return {name + suffix: export for suffix, export in exports.items()}


DOCUMENTS: dict[str, Export] = {
    **name_lines("gcloud", document(gcp)),
    **name_lines("cloudwatch-events", document(cloudwatch, lambda found: {"events": found, "searchedLogStreams": []})),
    **name_lines("insights-results", document(insights, lambda found: {"results": found, "status": "Complete"})),
    **name_lines("insights-json", document(lambda row: {"@timestamp": row.plain_line, "@message": row.text})),
    **name_lines("elastic-search", document(elastic, hits)),
    **name_lines("loki-api", document(lambda row: [row.milliardths, row.text], loki)),
    **name_lines("loki", document(lambda row: {"labels": {"pod": "a"}, "line": row.text, "timestamp": row.iso})),
    **name_lines("azure-tables", document(lambda row: [row.iso, "llama-0", row.text], azure)),
    **name_lines("azure-cli", document(lambda row: {"LogMessage": row.text, "PodName": "a", "TimeGenerated": row.iso})),
    **name_lines("datadog-api", document(datadog, lambda found: {"data": found, "meta": {"elapsed": 1}})),
    **name_lines("docker", document(lambda row: {"log": row.text + "\n", "stream": "stdout", "time": row.iso})),
    **name_lines("unknown", document(unknown)),
    "jq": lambda rows: b"".join(dump(gcp(row), indent=2) for row in rows),
    "one-string": lambda rows: dump("\n".join(row.text for row in rows)),
    "one-member": lambda rows: dump({"status": "ok", "logs": "\n".join(row.text for row in rows)}),
}
"""JSON that is more, or less, than one object for each line."""
ROWS: dict[str, Export] = {
    "gcloud-lines": lines(gcp),
    "docker-lines": lines(lambda row: {"log": row.text + "\n", "stream": "stdout", "time": row.iso}),
    "loki-lines": lines(lambda row: {"labels": {"pod": "a"}, "line": row.text, "timestamp": row.iso}),
    "elastic-lines": lines(elastic),
    "splunk-lines": lines(lambda row: {"preview": False, "result": {"_raw": row.text, "_time": row.iso}}),
    "unknown-lines": lines(unknown),
}
"""JSON with one object in each line."""
TABLES: dict[str, Export] = {
    "insights": table(["@timestamp", "@message"], lambda row: [row.plain_line, row.text]),
    "insights-columns": table(
        ["@logStream", "@message", "@log", "@timestamp"],
        lambda row: ["train/main", row.text, "1:train", row.plain_line],
    ),
    "console": table(["timestamp", "message"], lambda row: [row.thousandths, row.text]),
    "gcp": table(
        ["insertId", 'labels."k8s-pod/app"', "resource.labels.pod_name", "textPayload", "timestamp"],
        lambda row: ["1k2j3", "llama", "llama-0", row.text + "\n", row.iso],
    ),
    "azure": table(
        ["TimeGenerated [UTC]", "Computer", "LogMessage"],
        lambda row: [row.when.strftime("%m/%d/%Y, %I:%M:%S.%f %p"), "aks-1", row.text],
    ),
    "datadog": table(
        ["Date", "Host", "Service", "Content"], lambda row: [row.iso, "gpu-1", "train", row.text], quoting=csv.QUOTE_ALL
    ),
    "kibana": table(
        ["@timestamp", "kubernetes.pod.name", "message"],
        lambda row: [row.when.strftime("%b %d, %Y @ %H:%M:%S.%f"), "llama-0", row.text],
    ),
    "splunk": table(["_raw", "_time", "host"], lambda row: [row.text, row.iso, "gpu-1"], quoting=csv.QUOTE_ALL),
    "grafana": table(["Time", "Line", "tsNs"], lambda row: [row.iso, row.text, row.milliardths], quoting=csv.QUOTE_ALL),
    "semicolons": table(["@timestamp", "@message"], lambda row: [row.iso, row.text], delimiter=";"),
    "tabs": table(["TimeGenerated", "LogEntry"], lambda row: [row.iso, row.text], delimiter="\t"),
}
"""CSV."""
PREFIXED: dict[str, Export] = {
    "timestamps": add_prefixes(lambda row: f"{row.iso} "),
    "pods": add_prefixes(lambda row: f"[pod/llama-0/trainer] {row.iso} "),
    "logcli": add_prefixes(lambda row: f'{row.iso} {{app="llama", pod="llama-0"}} '),
    "aws-tail": add_prefixes(lambda row: f"{row.iso[:-1]}+00:00 train/main/4f1c "),
    "seconds": add_prefixes(lambda row: row.when.strftime("%b %d %H:%M:%S node-1 train[7]: ")),
    "": add_prefixes(lambda row: ""),
}
"""Text; the last one has no times of its own."""
EXPORTS = {**DOCUMENTS, **ROWS, **TABLES}
