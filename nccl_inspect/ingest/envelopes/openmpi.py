"""Open MPI's ``--tag-output`` with ``--timestamp-output``, and PRRTE's (Open MPI 5)."""

import re

from nccl_inspect.ingest.lines.envelope_fields import DAY, ISO, Stated

FIRST = b"[ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
PATTERN = re.compile(
    rb"(?:(?P<time>[A-Z][a-z]{2} " + DAY + rb" \d{4}|" + ISO + rb") ?)?"
    rb"\[(?:(?P<label>[\w.-]+)@)?\d+,(?P<rank>\d{1,7})\](?:\[[^\[\]]*\])?"
    rb"<(?P<stream>stdout|stderr|stddiag)>: ?"
)
SAMPLES = {
    b"[1,0]<stdout>:": Stated(rank=0, stream="stdout"),
    b"[1,15]<stderr>: ": Stated(rank=15, stream="stderr"),
    b"[prterun-host-123@1,0]<stdout>: ": Stated(label="prterun-host-123", rank=0, stream="stdout"),
    b"Fri Nov 20 23:13:07 2026[1,3]<stdout>:": Stated(time="Fri Nov 20 23:13:07 2026", rank=3, stream="stdout"),
}
