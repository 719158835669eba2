"""Syslog by RFC 5424: priority, version, time, node, program, process, message id, structured data."""

import re

from nccl_inspect.ingest.lines.envelope_fields import ISO, Stated

FIRST = b"<"
PATTERN = re.compile(
    rb"<\d{1,3}>1 (?P<time>" + ISO + rb"|-) (?P<label>\S+ \S+) \S+ \S+ "
    rb"(?:-|(?:\[[^\]]*\])+) (?:\xef\xbb\xbf)?"
)
SAMPLES = {
    b"<13>1 2026-11-20T23:13:07.071Z node-1 train 123 - - ": Stated(
        time="2026-11-20T23:13:07.071Z", label="node-1 train"
    ),
    b'<13>1 2026-11-20T23:13:07.071Z node-1 train 123 ID1 [meta a="b"] \xef\xbb\xbf': Stated(
        time="2026-11-20T23:13:07.071Z", label="node-1 train"
    ),
}
