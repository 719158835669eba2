"""torchrun (``--tee``): ``[ROLE and local rank]:``; torchx: ``[ROLE and replica]:``."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = b"["
PATTERN = re.compile(rb"\[(?P<label>(?!rank\d)[a-z][\w-]{0,40}\d|\d{1,4})\]: ?")
SAMPLES = {
    b"[default0]:": Stated(label="default0"),
    b"[0]:": Stated(label="0"),
    b"[trainer3]:": Stated(label="trainer3"),
}
