"""Loki's ``logcli``: time and stream labels before every line."""

import re

from nccl_inspect.ingest.lines.envelope_fields import ISO, Stated

FIRST = b"0123456789{"
PATTERN = re.compile(
    rb"(?:(?P<time>" + ISO + rb")[ \t]+)?"
    rb"\{(?:[^{}]*?\b(?:pod|pod_name|instance)=\"(?P<label>[^\"]*)\")?[^{}]*\}[ \t]+"
)
SAMPLES = {
    b'2026-11-20T23:13:07Z {app="llama", pod="llama-0"} ': Stated(time="2026-11-20T23:13:07Z", label="llama-0"),
    b"2026-11-20T23:13:07+01:00 {}\t": Stated(time="2026-11-20T23:13:07+01:00"),
}
