"""OpenTelemetry: log records with ``body.stringValue``."""

from nccl_inspect.ingest.objects import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.stated import Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader("body.stringValue", time="timeUnixNano observedTimeUnixNano")
SAMPLES = {
    b'{"timeUnixNano":"1795216387071868123","severityText":"INFO","body":{"stringValue":"LINE"}}': Stated(
        time="1795216387071868123"
    ),
}
