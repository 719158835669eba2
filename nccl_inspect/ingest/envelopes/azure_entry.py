"""Azure Monitor: rows of ``ContainerLog`` with ``LogEntry``."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader("LogEntry", time="TimeGenerated", label="PodName Name Computer")
SAMPLES = {
    b'{"TimeGenerated":"2026-11-20T23:13:07.071Z","Computer":"aks-1","LogEntry":"LINE"}': Stated(
        time="2026-11-20T23:13:07.071Z", label="aks-1"
    ),
}
