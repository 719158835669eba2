"""Determined AI (``det task logs``): time, container and rank before every line."""

import re

from nccl_inspect.ingest.lines.envelope_fields import ISO, Stated

FIRST = b"["
PATTERN = re.compile(
    rb"\[(?P<time>" + ISO + rb")\] (?P<label>[0-9a-f]{8}) (?:\[rank=(?P<rank>\d{1,7})\] )?\|\| (?:[A-Z]+: )?"
)
SAMPLES = {
    b"[2026-11-20T23:13:07.071868Z] 1a2b3c4d [rank=3] || ": Stated(
        time="2026-11-20T23:13:07.071868Z", label="1a2b3c4d", rank=3
    ),
    b"[2026-11-20T23:13:07Z] 1a2b3c4d || INFO: ": Stated(time="2026-11-20T23:13:07Z", label="1a2b3c4d"),
}
