"""CloudWatch: ``aws logs get-log-events`` and ``filter-log-events`` with ``--output text``."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = b"E"
PATTERN = re.compile(rb"EVENTS\t(?P<id>\d{40,60}\t)?(?P<time>\d{13})\t(?(id)(?P<label>[^\t]{1,512})\t)")
TRAILER = b"\t", re.compile(rb"\t\d{13}$")
SAMPLES = {
    b"EVENTS\t1795216387071\t": Stated(time="1795216387071"),
    b"EVENTS\t31132629274945519779805322857203735586714454643391594505\t1795216387071\ttrain/main/4f1c\t": Stated(
        time="1795216387071", label="train/main/4f1c"
    ),
}
