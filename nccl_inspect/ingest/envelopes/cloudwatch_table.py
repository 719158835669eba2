"""CloudWatch: tables of Logs Insights and of the console, with a time in the first column."""

import re

from nccl_inspect.ingest.lines.envelope_fields import ISO, Stated

FIRST = b"|"
PATTERN = re.compile(rb"\|{1,2}(?: \d{1,6} +\|)? +(?P<time>" + ISO + rb"|\d{13}) +\| +")
TRAILER = b"|", re.compile(rb"(?<! ) +\|{1,2}$")
SAMPLES = {
    b"| 2026-11-20 23:13:07.071 | ": Stated(time="2026-11-20 23:13:07.071"),
    b"| 1795216387071 | ": Stated(time="1795216387071"),
    b"|  1795216387071 |  ": Stated(time="1795216387071"),
}
