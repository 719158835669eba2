"""Splunk: exported rows with ``_raw``."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader("_raw", time="_time", label="host")
SAMPLES = {
    b'{"_raw":"LINE","_time":"2026-11-20T23:13:07.071+00:00","host":"gpu-1"}': Stated(
        time="2026-11-20T23:13:07.071+00:00", label="gpu-1"
    ),
}
