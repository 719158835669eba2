"""Docker's ``json-file`` driver: ``{"log":"…\\n","stream":"stdout","time":"…"}``; long lines come in parts of 16 kB."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import PART, Parts, Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader(
    "log", time="time", label="attrs.tag attrs.name", needs="stream", stream="stream", parts="logtag=P", size=PART
)
PARTS = Parts(b'"stream"', near=b"{", least=PART)
SAMPLES = {
    b'{"log":"LINE\\n","stream":"stdout","time":"2026-11-20T23:13:07.071868123Z"}': Stated(
        time="2026-11-20T23:13:07.071868123Z", stream="stdout"
    ),
}
