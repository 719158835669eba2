"""Google Cloud Logging: entries with ``jsonPayload.message``."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader(
    "jsonPayload.message", time="timestamp", label="resource.labels.pod_name resource.labels.container_name"
)
SAMPLES = {
    b'[{"jsonPayload":{"message":"LINE"},"timestamp":"2026-11-20T23:13:07Z"},': Stated(time="2026-11-20T23:13:07Z"),
}
