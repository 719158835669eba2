"""A plus or minus before every line, more of a merge: a log in a diff or a review."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = b"+-"
PATTERN = re.compile(rb"[+-]+(?=[^+-])")
SAMPLES = {
    b"+": Stated(),
    b"-": Stated(),
    b"++": Stated(),
}
