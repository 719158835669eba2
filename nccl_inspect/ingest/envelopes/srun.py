"""``srun -l``: the task before every line, padded to the width of the largest."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = b" 0123456789"
PATTERN = re.compile(rb" {0,6}(?P<rank>\d{1,7}): ")
SAMPLES = {
    b"0: ": Stated(rank=0),
    b"  12: ": Stated(rank=12),
}
