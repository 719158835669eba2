"""Fluent Bit and Fluentd: objects with ``log`` or ``message`` and what Kubernetes says of the pod."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import LOGTAG, Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader(
    "log",
    time="@timestamp time date",
    label="kubernetes.pod_name kubernetes.container_name",
    stream="stream",
    parts="logtag=P",
)
PARTS = LOGTAG
SAMPLES = {
    b'{"stream":"stderr","logtag":"P","log":"LINE","time":"2026-11-20T23:13:07.071868123Z"}': Stated(
        time="2026-11-20T23:13:07.071868123Z", stream="stderr", partial=True
    ),
    b'{"stream":"stderr","logtag":"F","log":"LINE","time":"2026-11-20T23:13:07.071868124Z"}': Stated(
        time="2026-11-20T23:13:07.071868124Z", stream="stderr"
    ),
    b'{"date":1795216387.071868,"log":"LINE","kubernetes":{"pod_name":"llama-0","container_name":"trainer"}}': Stated(
        time="1795216387.071868", label="llama-0/trainer"
    ),
}
