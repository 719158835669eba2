"""Vector, Logstash and programs that log JSON: objects with ``message``."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import LOGTAG, Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader(
    "message",
    time="timestamp @timestamp time ts",
    label="kubernetes.pod_name kubernetes.pod.name kubernetes.container_name container_name host.name host",
    rank="rank",
    stream="stream",
    parts="logtag=P",
)
PARTS = LOGTAG
SAMPLES = {
    b'{"message":"LINE","timestamp":"2026-11-20T23:13:07Z","kubernetes":{"pod_name":"llama-0"}}': Stated(
        time="2026-11-20T23:13:07Z", label="llama-0"
    ),
    b'{"message":"LINE","stream":"stdout","logtag":"P","@timestamp":"2026-11-20T23:13:07Z"}': Stated(
        time="2026-11-20T23:13:07Z", stream="stdout", partial=True
    ),
    b'{"message":"LINE","stream":"stdout","logtag":"F","@timestamp":"2026-11-20T23:13:08Z"}': Stated(
        time="2026-11-20T23:13:08Z", stream="stdout"
    ),
    b'{"message":"LINE","rank":3}': Stated(rank=3),
}
