"""torchx: ``ROLE/REPLICA `` before every line."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = b"abcdefghijklmnopqrstuvwxyz"
PATTERN = re.compile(rb"(?P<label>[a-z][\w-]{0,40}/\d{1,5}) ")
SAMPLES = {
    b"trainer/0 ": Stated(label="trainer/0"),
}
