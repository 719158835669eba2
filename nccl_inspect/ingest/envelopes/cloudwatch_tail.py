"""CloudWatch: ``aws logs tail`` (time and stream), and text that was copied from the console (time and a tab)."""

import re

from nccl_inspect.ingest.lines.envelope_fields import ISO, Stated

FIRST = b"0123456789"
PATTERN = re.compile(rb"(?P<time>" + ISO + rb"|\d{13})(?:\t| (?P<label>[\w.$-]+/[^\s\[\]:]+) )")
SAMPLES = {
    b"2026-11-20T23:13:07.071000+00:00 train/main/4f1c ": Stated(
        time="2026-11-20T23:13:07.071000+00:00", label="train/main/4f1c"
    ),
    b"2026-11-20T23:13:07.071Z\t": Stated(time="2026-11-20T23:13:07.071Z"),
    b"1795216387071\t": Stated(time="1795216387071"),
}
