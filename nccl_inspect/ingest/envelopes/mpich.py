"""Intel MPI and MPICH (Hydra's ``-prepend-rank``, ``-l``): the rank, with its node if the pattern says so."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = b"["
PATTERN = re.compile(rb"\[(?P<rank>\d{1,7})(?:@(?P<label>[\w.-]+))?\] ")
SAMPLES = {
    b"[3] ": Stated(rank=3),
    b"[3@node-1] ": Stated(label="node-1", rank=3),
}
