"""Grafana: rows of a table or CSV with ``Line``."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader("Line", time="Time tsNs")
SAMPLES = {
    b'{"Time":"2026-11-20T23:13:07.071Z","Line":"LINE","tsNs":"1795216387071868123"}': Stated(
        time="2026-11-20T23:13:07.071Z"
    ),
}
