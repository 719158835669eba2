"""Determined AI (``[rank=0] || ``) and Lightning (``[rank: 0] ``): the rank before every line."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = b"["
PATTERN = re.compile(rb"\[rank(?:=|: )(?P<rank>\d{1,7})\] (?:\|\| )?")
SAMPLES = {
    b"[rank=0] || ": Stated(rank=0),
    b"[rank=12] ": Stated(rank=12),
    b"[rank: 3] ": Stated(rank=3),
}
