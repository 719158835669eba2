"""A time and a blank before every line: ``kubectl logs --timestamps``, ``docker logs -t``, GitHub Actions."""

import re

from nccl_inspect.ingest.lines.envelope_fields import ISO, Stated

FIRST = b"0123456789"
PATTERN = re.compile(rb"(?P<time>" + ISO + rb")[ \t]")
SAMPLES = {
    b"2026-11-20T23:13:07.071868123Z ": Stated(time="2026-11-20T23:13:07.071868123Z"),
    b"2026-11-20T23:13:07+01:00 ": Stated(time="2026-11-20T23:13:07+01:00"),
}
