"""Loki and Grafana: ``logcli -o jsonl`` and downloads with ``line``."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader("line", time="timestamp date", label="labels.pod labels.container fields.pod")
SAMPLES = {
    b'{"labels":{"pod":"llama-0"},"line":"LINE","timestamp":"2026-11-20T23:13:07Z"}': Stated(
        time="2026-11-20T23:13:07Z", label="llama-0"
    ),
}
