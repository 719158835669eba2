"""A time in brackets before every line: Jenkins, CircleCI, AzureML, Determined AI."""

import re

from nccl_inspect.ingest.lines.envelope_fields import ISO, Stated

FIRST = b"["
PATTERN = re.compile(rb"\[(?P<time>" + ISO + rb"|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)\] ?")
SAMPLES = {
    b"[2026-11-20T23:13:07.071Z] ": Stated(time="2026-11-20T23:13:07.071Z"),
    b"[2026-11-20T23:13:07.071868] ": Stated(time="2026-11-20T23:13:07.071868"),
    b"[23:13:07] ": Stated(time="23:13:07"),
}
