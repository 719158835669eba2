"""CloudWatch: exports with ``events[].message``, on one line or spread over lines."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader("events[].message", time="timestamp", label="logStreamName")
SAMPLES = {
    b'{"events":[{"timestamp":1795216387071,"message":"LINE","logStreamName":"train/main/4f1c"}]}': Stated(
        time="1795216387071", label="train/main/4f1c"
    ),
}
