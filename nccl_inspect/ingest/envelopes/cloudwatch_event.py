"""CloudWatch: single events (``jq -c .events[]``), and members of events that are spread over lines."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader("message", time="timestamp ingestionTime", label="logStreamName")
SAMPLES = {
    b'{"logStreamName":"train/main/4f1c","timestamp":1795216387071,"message":"LINE"},': Stated(
        time="1795216387071", label="train/main/4f1c"
    ),
    b'            "message": "LINE",': Stated(),
    b'[{"timestamp":1795216387071,"message":"LINE"}]': Stated(time="1795216387071"),
}
