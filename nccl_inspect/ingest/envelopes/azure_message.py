"""Azure Monitor: rows of ``ContainerLogV2`` with ``LogMessage``."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader("LogMessage", time="TimeGenerated", label="PodName ContainerName")
SAMPLES = {
    b'{"TimeGenerated":"2026-11-20T23:13:07.071Z","PodName":"llama-0","LogMessage":"LINE"}': Stated(
        time="2026-11-20T23:13:07.071Z", label="llama-0"
    ),
}
