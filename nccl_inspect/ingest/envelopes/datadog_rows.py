"""Datadog: rows of the log explorer with ``Content`` (``Date,Host,Service,Content``)."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader("Content", time="Date", label="Host Service")
SAMPLES = {
    b'{"Date":"2026-11-20T23:13:07.071Z","Host":"gpu-1","Service":"train","Content":"LINE"}': Stated(
        time="2026-11-20T23:13:07.071Z", label="gpu-1/train"
    ),
}
