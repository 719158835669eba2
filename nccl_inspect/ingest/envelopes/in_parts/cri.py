"""Container runtimes (CRI: containerd, CRI-O), as in ``/var/log/pods``: time, stream and whether the line continues."""

from nccl_inspect.ingest.lines.envelope_fields import ISO, Parts, Stated
from nccl_inspect.util.patterns import later

FIRST = b"0123456789"
PATTERN = later(rb"(?P<time>" + ISO + rb") (?P<stream>stdout|stderr) (?:F|(?P<partial>P))(?::[^ ]*)? ")
PARTS = Parts(b" stdout P", b" stderr P", common=b" std")
SAMPLES = {
    b"2026-11-20T23:13:07.071868123Z stdout F ": Stated(time="2026-11-20T23:13:07.071868123Z", stream="stdout"),
    b"2026-11-20T23:13:07.071868123+01:00 stdout P ": Stated(
        time="2026-11-20T23:13:07.071868123+01:00", stream="stdout", partial=True
    ),
}
