"""``journalctl -o json``: objects with ``MESSAGE``, which is a list of bytes when it is not plain text."""

from nccl_inspect.ingest.exports.json_records import JSON, JSON_FIRST, JsonReader
from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = JSON_FIRST
OPENING = JSON
READ = JsonReader("MESSAGE", time="_SOURCE_REALTIME_TIMESTAMP __REALTIME_TIMESTAMP", label="_HOSTNAME _SYSTEMD_UNIT")
SAMPLES = {
    b'{"__REALTIME_TIMESTAMP":"1795216387071868","_HOSTNAME":"n1","_SYSTEMD_UNIT":"train","MESSAGE":"LINE"}': Stated(
        time="1795216387071868", label="n1/train"
    ),
}
