"""k9s: logs that were copied with the border of the window."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = b"\xe2|"
PATTERN = re.compile(rb"(?:\xe2\x94\x82|\xe2\x95\x91|\xe2\x94\x83|\|) ?")
TRAILER = b"\xe2", re.compile(rb"(?<! ) *(?:\xe2\x94\x82|\xe2\x95\x91|\xe2\x94\x83) *$")
SAMPLES = {
    b"\xe2\x94\x82 ": Stated(),
    b"\xe2\x94\x82": Stated(),
    b"| ": Stated(),
}
