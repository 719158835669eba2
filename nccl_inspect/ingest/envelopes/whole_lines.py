"""What launchers, collectors and exports put a whole line into: JSON, CSV, logfmt, quotes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader, any_reader
from nccl_inspect.ingest.lines.envelope_fields import (
    CSV,
    CSV_FIRST,
    ISO,
    WORD,
    Inner,
    Stated,
    Whole,
    csv_reader,
    quoted_reader,
    quoted_text,
)
from nccl_inspect.util.text import decode

_FLUENT_BIT_STDOUT = re.compile(
    rb"\[\d{1,9}\] (?P<label>[\w./@$#-]{1,300}): \[\[?(?P<time>\d{10}\.\d{1,9})(?:, \{[^{}]*\}\])?, (?=\{\s*\")"
)


def _fluent_bit_stdout(line: bytes) -> list[Inner]:
    """Return the lines in the object."""
    match = _FLUENT_BIT_STDOUT.match(line)
    if match is None:
        return []
    outer = Stated(decode(match["time"]), decode(match["label"]))
    record = line[match.end() :].rstrip().removesuffix(b"]")
    return [Inner(inner.text, inner.stated.add_outer(outer)) for inner in envelopes.contents(record)]


_VALUE = rb"\"(?:[^\"\\]|\\.)*+\"|[^\s\"]*+"


_PAIR = re.compile(rb"(?<!\S)([A-Za-z_@][\w.@-]{0,60}+)=(" + _VALUE + rb")(?:[ \t]+|$)")


_MESSAGES = "msg", "message", "log", "line"


_TIMES = "ts", "time", "timestamp", "t"


_LABELS = "pod", "pod_name", "host", "hostname", "instance", "container"


def _logfmt(line: bytes) -> list[Inner]:
    """Return the line in a record."""
    fields = {decode(name): quoted_text(value) for name, value in _PAIR.findall(line)}
    text = next((fields[name] for name in _MESSAGES if fields.get(name)), b"")
    time = next((decode(fields[name]) for name in _TIMES if fields.get(name)), None)
    label = "/".join(decode(fields[name]) for name in _LABELS if fields.get(name)) or None
    rank = fields.get("rank", b"")
    return [Inner(text, Stated(time, label, int(rank) if rank.isdigit() else None))] if text else []


_TAGGED_JSON = re.compile(
    rb"(?:(?P<time>"
    + ISO
    + rb"(?: [+-]\d{4})?)[ \t]+)?(?P<label>[\w./@$#-]{1,300})(?:\[\d{1,10}\])?:?[ \t]+(?=\{\s*\")"
)


def _tagged_json(line: bytes) -> list[Inner]:
    """Return the lines in the object."""
    match = _TAGGED_JSON.match(line)
    if match is None:
        return []
    outer = Stated(decode(match["time"]) if match["time"] else None, decode(match["label"]))
    return [Inner(inner.text, inner.stated.add_outer(outer)) for inner in envelopes.contents(line[match.end() :])]


def _object(read: JsonReader, samples: Mapping[bytes, Stated]) -> Whole:
    """JSON objects."""
    return Whole(JSON_FIRST, JSON, read, samples)


WHOLE_LINES = {
    # Azure Monitor: rows of ``ContainerLog`` with ``LogEntry``.
    "azure_entry": _object(
        JsonReader("LogEntry", time="TimeGenerated", label="PodName Name Computer"),
        {
            b'{"TimeGenerated":"2026-11-20T23:13:07.071Z","Computer":"aks-1","LogEntry":"LINE"}': Stated(
                time="2026-11-20T23:13:07.071Z", label="aks-1"
            )
        },
    ),
    # Azure Monitor: rows of ``ContainerLogV2`` with ``LogMessage``.
    "azure_message": _object(
        JsonReader("LogMessage", time="TimeGenerated", label="PodName ContainerName"),
        {
            b'{"TimeGenerated":"2026-11-20T23:13:07.071Z","PodName":"llama-0","LogMessage":"LINE"}': Stated(
                time="2026-11-20T23:13:07.071Z", label="llama-0"
            )
        },
    ),
    # OpenTelemetry collectors, SigNoz and Honeycomb: records with ``body``.
    "body": _object(
        JsonReader("body", time="timestamp time", label="resources_string.k8s.pod.name resources.k8s.pod.name host"),
        {
            b'{"timestamp":"2026-11-20T23:13:07.071Z","body":"LINE","host":"gpu-1"}': Stated(
                time="2026-11-20T23:13:07.071Z", label="gpu-1"
            )
        },
    ),
    # CloudWatch: single events (``jq -c .events[]``), and members of events that are spread over lines.
    "cloudwatch_event": _object(
        JsonReader("message", time="timestamp ingestionTime", label="logStreamName"),
        {
            b'{"logStreamName":"train/main/4f1c","timestamp":1795216387071,"message":"LINE"},': Stated(
                time="1795216387071", label="train/main/4f1c"
            ),
            b'            "message": "LINE",': Stated(),
            b'[{"timestamp":1795216387071,"message":"LINE"}]': Stated(time="1795216387071"),
        },
    ),
    # CloudWatch Logs Insights: rows with ``@message``, as the console exports them.
    "cloudwatch_insights": _object(
        JsonReader("@message", time="@timestamp @ingestionTime", label="@logStream"),
        {
            b'{"@timestamp":"2026-11-20 23:13:07.071","@message":"LINE","@logStream":"train/main/4f1c"}': Stated(
                time="2026-11-20 23:13:07.071", label="train/main/4f1c"
            )
        },
    ),
    # CloudWatch: exports with ``events[].message``, on one line or spread over lines.
    "cloudwatch_json": _object(
        JsonReader("events[].message", time="timestamp", label="logStreamName"),
        {
            b'{"events":[{"timestamp":1795216387071,"message":"LINE","logStreamName":"train/main/4f1c"}]}': Stated(
                time="1795216387071", label="train/main/4f1c"
            )
        },
    ),
    # CloudWatch: subscriptions and exports to S3 and Firehose with ``logEvents[].message``.
    "cloudwatch_subscription": _object(
        JsonReader("logEvents[].message", time="timestamp"),
        {
            b'{"logGroup":"train","logEvents":[{"id":"1","timestamp":1795216387071,"message":"LINE"}]}': Stated(
                time="1795216387071"
            )
        },
    ),
    # Rows of CSV: CloudWatch Logs Insights, Grafana, Azure; the cell with the line is recognized by its content.
    "csv_export": Whole(
        CSV_FIRST,
        CSV,
        csv_reader,
        {
            b"2026-11-20 23:13:07.071,LINE": Stated(time="2026-11-20 23:13:07.071"),
            b'2026-11-20 23:13:07.071,"LINE",train/main': Stated(time="2026-11-20 23:13:07.071"),
            b'"LINE"': Stated(),
        },
    ),
    # Datadog: answers of the logs API with ``attributes.message``.
    "datadog": _object(
        JsonReader("attributes.message", time="attributes.timestamp", label="attributes.host attributes.service"),
        {
            b'{"id":"A1","attributes":{"timestamp":"2026-11-20T23:13:07Z","host":"gpu-1","message":"LINE"}}': Stated(
                time="2026-11-20T23:13:07Z", label="gpu-1"
            )
        },
    ),
    # Datadog: rows of the log explorer with ``Message`` (``Date,Host,Service,Message``).
    "datadog_messages": _object(
        JsonReader("Message", time="Date", label="Host Service"),
        {
            b'{"Date":"2026-11-20T23:13:07.071Z","Host":"gpu-1","Service":"train","Message":"LINE"}': Stated(
                time="2026-11-20T23:13:07.071Z", label="gpu-1/train"
            )
        },
    ),
    # Datadog: rows of the log explorer with ``Content`` (``Date,Host,Service,Content``).
    "datadog_rows": _object(
        JsonReader("Content", time="Date", label="Host Service"),
        {
            b'{"Date":"2026-11-20T23:13:07.071Z","Host":"gpu-1","Service":"train","Content":"LINE"}': Stated(
                time="2026-11-20T23:13:07.071Z", label="gpu-1/train"
            )
        },
    ),
    # Elasticsearch and OpenSearch: hits with ``_source.message``.
    "elastic": _object(
        JsonReader(
            "_source.message",
            time="_source.@timestamp",
            label="_source.kubernetes.pod.name _source.kubernetes.pod_name _source.kubernetes.container.name "
            "_source.host.name",
        ),
        {
            b'{"_source":{"@timestamp":"2026-11-20T23:13:07Z","message":"LINE","host":{"name":"gpu-1"}}}': Stated(
                time="2026-11-20T23:13:07Z", label="gpu-1"
            )
        },
    ),
    # Elasticsearch and OpenSearch: hits with ``_source.log``, as Fluent Bit sends them.
    "elastic_log": _object(
        JsonReader(
            "_source.log",
            time="_source.@timestamp _source.time",
            label="_source.kubernetes.pod_name _source.kubernetes.container_name",
        ),
        {
            b'{"_source":{"@timestamp":"2026-11-20T23:13:07Z","log":"LINE","kubernetes":{"pod_name":"l-0"}}}': Stated(
                time="2026-11-20T23:13:07Z", label="l-0"
            )
        },
    ),
    # Fluent Bit's standard output: the number of a record, its tag, its time and its object.
    "fluent_bit_stdout": Whole(
        b"[",
        _FLUENT_BIT_STDOUT,
        _fluent_bit_stdout,
        {
            b'[0] kube.llama: [[1795216387.071868123, {}], {"log":"LINE"}]': Stated(
                time="1795216387.071868123", label="kube.llama"
            ),
            b'[0] kube.llama: [1795216387.071868123, {"log":"LINE"}]': Stated(
                time="1795216387.071868123", label="kube.llama"
            ),
        },
    ),
    # Google Cloud Logging: entries with ``jsonPayload.message``.
    "gcp_json": _object(
        JsonReader(
            "jsonPayload.message", time="timestamp", label="resource.labels.pod_name resource.labels.container_name"
        ),
        {
            b'[{"jsonPayload":{"message":"LINE"},"timestamp":"2026-11-20T23:13:07Z"},': Stated(
                time="2026-11-20T23:13:07Z"
            )
        },
    ),
    # Google Cloud Logging: entries with ``textPayload``.
    "gcp_text": _object(
        JsonReader("textPayload", time="timestamp", label="resource.labels.pod_name resource.labels.container_name"),
        {
            b'{"textPayload":"LINE","timestamp":"2026-11-20T23:13:07Z","resource":{"labels":{"pod_name":"l"}}}': Stated(
                time="2026-11-20T23:13:07Z", label="l"
            )
        },
    ),
    # Grafana: rows of a table or CSV with ``Line``.
    "grafana_rows": _object(
        JsonReader("Line", time="Time tsNs"),
        {
            b'{"Time":"2026-11-20T23:13:07.071Z","Line":"LINE","tsNs":"1795216387071868123"}': Stated(
                time="2026-11-20T23:13:07.071Z"
            )
        },
    ),
    # ``journalctl -o json``: objects with ``MESSAGE``, which is a list of bytes when it is not plain text.
    "journald_json": _object(
        JsonReader("MESSAGE", time="_SOURCE_REALTIME_TIMESTAMP __REALTIME_TIMESTAMP", label="_HOSTNAME _SYSTEMD_UNIT"),
        {
            b'{"__REALTIME_TIMESTAMP":"1795216387071868","_HOSTNAME":"n","_SYSTEMD_UNIT":"t","MESSAGE":"LINE"}': Stated(
                time="1795216387071868", label="n/t"
            )
        },
    ),
    # JSON objects of no known kind: the text of NCCL in them, else the longest one.
    "json_any": Whole(
        JSON_FIRST,
        JSON,
        any_reader,
        {b'{"when":"2026-11-20T23:13:07.071Z","what":{"said":"LINE"}}': Stated(time="2026-11-20T23:13:07.071Z")},
        is_fallback=True,
    ),
    # logfmt: ``ts=… level=info msg="…"``, as Loki, Prometheus and Go's loggers write it.
    "logfmt": Whole(
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_@",
        re.compile(rb"(?:[A-Za-z_@][\w.@-]{0,60}+=(?:" + _VALUE + rb")[ \t]+){0,20}(?:msg|message|log|line)=\""),
        _logfmt,
        {
            b'ts=2026-11-20T23:13:07.071Z level=info pod=llama-0 msg="LINE"': Stated(
                time="2026-11-20T23:13:07.071Z", label="llama-0"
            ),
            b'time="2026-11-20T23:13:07Z" level=info msg="LINE" rank=3': Stated(time="2026-11-20T23:13:07Z", rank=3),
        },
    ),
    # Loki and Grafana: ``logcli -o jsonl`` and downloads with ``line``.
    "loki_json": _object(
        JsonReader("line", time="timestamp date", label="labels.pod labels.container fields.pod"),
        {
            b'{"labels":{"pod":"llama-0"},"line":"LINE","timestamp":"2026-11-20T23:13:07Z"}': Stated(
                time="2026-11-20T23:13:07Z", label="llama-0"
            )
        },
    ),
    # OpenTelemetry: log records with ``body.stringValue``.
    "opentelemetry": _object(
        JsonReader("body.stringValue", time="timeUnixNano observedTimeUnixNano"),
        {
            b'{"timeUnixNano":"1795216387071868123","severityText":"INFO","body":{"stringValue":"LINE"}}': Stated(
                time="1795216387071868123"
            )
        },
    ),
    # Lines in quotes: Ansible's ``stdout_lines``, and lists and bytes as Python prints them.
    "quoted": Whole(
        b"\"'b \t,[",
        re.compile(rb"[\s,\[]*b?[\"'](?!\w{1,40}[\"']\s*:)"),
        quoted_reader,
        {b'        "LINE",': Stated(), b"b'LINE'": Stated()},
    ),
    # Programs that log JSON with ``msg``: Go's slog, zap and logrus, pino.
    "slog": _object(
        JsonReader("msg", time="time ts timestamp", label="hostname host", rank="rank"),
        {b'{"time":"2026-11-20T23:13:07.071Z","level":"INFO","msg":"LINE"}': Stated(time="2026-11-20T23:13:07.071Z")},
    ),
    # Splunk: exported rows with ``_raw``.
    "splunk": _object(
        JsonReader("_raw", time="_time", label="host"),
        {
            b'{"_raw":"LINE","_time":"2026-11-20T23:13:07+00:00","host":"gpu-1"}': Stated(
                time="2026-11-20T23:13:07+00:00", label="gpu-1"
            )
        },
    ),
    # Splunk: results of an export search, one object for each row.
    "splunk_result": _object(
        JsonReader("result._raw", time="result._time", label="result.host"),
        {
            b'{"preview":false,"result":{"_raw":"LINE","_time":"2026-11-20T23:13:07+00:00","host":"gpu-1"}}': Stated(
                time="2026-11-20T23:13:07+00:00", label="gpu-1"
            )
        },
    ),
    # A time, a stream or tag, and an object: ``aws logs tail`` of logs of Fluent Bit, Fluentd's files and output.
    "tagged_json": Whole(
        WORD + b"/",
        _TAGGED_JSON,
        _tagged_json,
        {
            b'2026-11-20T23:13:07.071000+00:00 ip-10-0-0-1.app.llama-0 {"log":"LINE","stream":"stdout"}': Stated(
                time="2026-11-20T23:13:07.071000+00:00", label="ip-10-0-0-1.app.llama-0", stream="stdout"
            ),
            b'2026-11-20T23:13:07+00:00\tkube.llama\t{"log":"LINE\\n","kubernetes":{"pod_name":"llama-0"}}': Stated(
                time="2026-11-20T23:13:07+00:00", label="kube.llama llama-0"
            ),
            b'2026-11-20 23:13:07.071868000 +0000 kube.llama: {"log":"LINE"}': Stated(
                time="2026-11-20 23:13:07.071868000 +0000", label="kube.llama"
            ),
        },
    ),
}
