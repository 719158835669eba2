"""Syslog by RFC 3164: priority, time, node and tag."""

import re

from nccl_inspect.ingest.lines.envelope_fields import DAY, ISO, Stated

FIRST = b"<"
PATTERN = re.compile(
    rb"<\d{1,3}>(?P<time>" + DAY + rb"|" + ISO + rb") (?P<label>[\w.-]+"
    rb"(?: [\w./-]{1,48})?)(?:\[\d+\])?: ?"
)
SAMPLES = {
    b"<13>Nov 20 23:13:07 node-1 train[123]: ": Stated(time="Nov 20 23:13:07", label="node-1 train"),
}
