"""Splunk: results of an export search, one object for each row."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader("result._raw", time="result._time", label="result.host")
SAMPLES = {
    b'{"preview":false,"result":{"_raw":"LINE","_time":"2026-11-20T23:13:07.071+00:00","host":"gpu-1"}}': Stated(
        time="2026-11-20T23:13:07.071+00:00", label="gpu-1"
    ),
}
