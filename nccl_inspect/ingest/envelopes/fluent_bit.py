"""Fluent Bit and Fluentd: objects with ``log`` or ``message`` and what Kubernetes says of the pod."""

from nccl_inspect.ingest.stated import JSON, JSON_FIRST, Stated, json_reader

FIRST = JSON_FIRST
OPENING = JSON
READ = json_reader("log", time="@timestamp time date", label="kubernetes.pod_name kubernetes.container_name")
SAMPLES = {
    b'{"date":1795216387.071868,"log":"LINE","kubernetes":{"pod_name":"llama-0","container_name":"trainer"}}': Stated(
        time="1795216387.071868", label="llama-0/trainer"
    ),
}
