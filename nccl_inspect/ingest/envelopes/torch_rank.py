"""PyTorch and its launchers: ``[rank3]:``."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = b"["
PATTERN = re.compile(rb"\[rank(?P<rank>\d{1,7})\]: ?")
SAMPLES = {
    b"[rank0]:": Stated(rank=0),
    b"[rank12]: ": Stated(rank=12),
}
