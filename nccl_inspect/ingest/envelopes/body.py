"""OpenTelemetry collectors, SigNoz and Honeycomb: records with ``body``."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader("body", time="timestamp time", label="resources_string.k8s.pod.name resources.k8s.pod.name host")
SAMPLES = {
    b'{"timestamp":"2026-11-20T23:13:07.071Z","body":"LINE","host":"gpu-1"}': Stated(
        time="2026-11-20T23:13:07.071Z", label="gpu-1"
    ),
}
