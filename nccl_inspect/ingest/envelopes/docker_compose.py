"""``docker compose``: the container and a bar before every line."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = b"abcdefghijklmnopqrstuvwxyz0123456789"
PATTERN = re.compile(rb"(?P<label>[a-z][\w.-]{0,80}) +\| ")
SAMPLES = {
    b"trainer-1  | ": Stated(label="trainer-1"),
    b"worker-0 | ": Stated(label="worker-0"),
}
