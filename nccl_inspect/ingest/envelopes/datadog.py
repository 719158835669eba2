"""Datadog: answers of the logs API with ``attributes.message``."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader("attributes.message", time="attributes.timestamp", label="attributes.host attributes.service")
SAMPLES = {
    b'{"id":"A1","attributes":{"timestamp":"2026-11-20T23:13:07.071Z","host":"gpu-1","message":"LINE"}}': Stated(
        time="2026-11-20T23:13:07.071Z", label="gpu-1"
    ),
}
