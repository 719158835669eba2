"""``journalctl`` and syslog files (RFC 3164 without its priority): time, node and unit before every line."""

import re

from nccl_inspect.ingest.lines.envelope_fields import DAY, ISO, Stated

FIRST = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"
PATTERN = re.compile(
    rb"(?P<time>" + DAY + rb"(?:\.\d{1,6})?|" + ISO + rb") "
    rb"(?P<label>[\w.-]+ [\w./@\\-]+)(?:\[\d+\])?: "
)
SAMPLES = {
    b"Nov 20 23:13:07 node-1 train.service[123]: ": Stated(time="Nov 20 23:13:07", label="node-1 train.service"),
    b"Nov  2 03:13:07.071868 node-1 python3: ": Stated(time="Nov  2 03:13:07.071868", label="node-1 python3"),
    b"2026-11-20T23:13:07+0100 node-1 train[123]: ": Stated(time="2026-11-20T23:13:07+0100", label="node-1 train"),
}
