"""CloudWatch Logs Insights: rows with ``@message``, as the console exports them."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader("@message", time="@timestamp @ingestionTime", label="@logStream")
SAMPLES = {
    b'{"@timestamp":"2026-11-20 23:13:07.071","@message":"LINE","@logStream":"train/main/4f1c"}': Stated(
        time="2026-11-20 23:13:07.071", label="train/main/4f1c"
    ),
}
