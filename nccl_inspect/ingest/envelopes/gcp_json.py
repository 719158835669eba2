"""Google Cloud Logging: entries with ``jsonPayload.message``."""

from nccl_inspect.ingest.stated import JSON, JSON_FIRST, Stated, json_reader

FIRST = JSON_FIRST
OPENING = JSON
READ = json_reader(
    "jsonPayload.message", time="timestamp", label="resource.labels.pod_name resource.labels.container_name"
)
SAMPLES = {
    b'[{"jsonPayload":{"message":"LINE"},"timestamp":"2026-11-20T23:13:07Z"},': Stated(time="2026-11-20T23:13:07Z"),
}
