"""Elasticsearch and OpenSearch: hits with ``_source.message``."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader(
    "_source.message",
    time="_source.@timestamp",
    label="_source.kubernetes.pod.name _source.kubernetes.pod_name _source.kubernetes.container.name _source.host.name",
)
SAMPLES = {
    b'{"_source":{"@timestamp":"2026-11-20T23:13:07Z","message":"LINE","host":{"name":"gpu-1"}}}': Stated(
        time="2026-11-20T23:13:07Z", label="gpu-1"
    ),
}
