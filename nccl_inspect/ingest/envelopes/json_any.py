"""JSON objects of no known kind: the text of NCCL in them, else the longest one."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, any_reader
from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = any_reader
FALLBACK = True
SAMPLES = {
    b'{"when":"2026-11-20T23:13:07.071Z","what":{"said":"LINE"}}': Stated(time="2026-11-20T23:13:07.071Z"),
}
