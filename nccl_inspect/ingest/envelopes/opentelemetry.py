"""OpenTelemetry: log records with ``body.stringValue``."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader("body.stringValue", time="timeUnixNano observedTimeUnixNano")
SAMPLES = {
    b'{"timeUnixNano":"1795216387071868123","severityText":"INFO","body":{"stringValue":"LINE"}}': Stated(
        time="1795216387071868123"
    ),
}
