"""Programs that log JSON with ``msg``: Go's slog, zap and logrus, pino."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader("msg", time="time ts timestamp", label="hostname host", rank="rank")
SAMPLES = {
    b'{"time":"2026-11-20T23:13:07.071Z","level":"INFO","msg":"LINE"}': Stated(time="2026-11-20T23:13:07.071Z"),
}
