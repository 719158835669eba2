"""CloudWatch: subscriptions and exports to S3 and Firehose with ``logEvents[].message``."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader("logEvents[].message", time="timestamp")
SAMPLES = {
    b'{"logGroup":"train","logEvents":[{"id":"1","timestamp":1795216387071,"message":"LINE"}]}': Stated(
        time="1795216387071"
    ),
}
