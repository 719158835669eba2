"""``gh run view --log``: job, step and time before every line, with tabs between."""

import re

from nccl_inspect.ingest.lines.envelope_fields import ISO, Stated

FIRST = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"
PATTERN = re.compile(rb"(?P<label>[^\t\n\x22]{1,120})\t[^\t\n]{1,120}\t(?:\xef\xbb\xbf)?(?P<time>" + ISO + rb") ")
SAMPLES = {
    b"train\tRun the job\t2026-11-20T23:13:07.0718681Z ": Stated(time="2026-11-20T23:13:07.0718681Z", label="train"),
}
