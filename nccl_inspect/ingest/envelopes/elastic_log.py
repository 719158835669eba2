"""Elasticsearch and OpenSearch: hits with ``_source.log``, as Fluent Bit sends them."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader(
    "_source.log",
    time="_source.@timestamp _source.time",
    label="_source.kubernetes.pod_name _source.kubernetes.container_name",
)
SAMPLES = {
    b'{"_source":{"@timestamp":"2026-11-20T23:13:07.071Z","log":"LINE","kubernetes":{"pod_name":"llama-0"}}}': Stated(
        time="2026-11-20T23:13:07.071Z", label="llama-0"
    ),
}
