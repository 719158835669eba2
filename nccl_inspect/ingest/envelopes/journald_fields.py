"""``journalctl -o export`` and ``-o verbose``: each field of an entry on a line of its own."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = b" M"
PATTERN = re.compile(rb" {0,8}MESSAGE=")
SAMPLES = {
    b"MESSAGE=": Stated(),
    b"    MESSAGE=": Stated(),
}
