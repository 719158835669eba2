"""Metaflow: time, ``[RUN/STEP/TASK (pid N)]``."""

import re

from nccl_inspect.ingest.lines.envelope_fields import ISO, Stated

FIRST = b"0123456789"
PATTERN = re.compile(rb"(?P<time>" + ISO + rb") \[(?P<label>[^\s\[\]/]++/[^\s\[\]]++)(?: \(pid \d+\))?\] ")
SAMPLES = {
    b"2026-11-20 23:13:07.071 [123/train/456 (pid 789)] ": Stated(
        time="2026-11-20 23:13:07.071", label="123/train/456"
    ),
}
