"""``grep -H``: the file before every line."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./"
PATTERN = re.compile(rb"(?P<label>[\w./@=+-]{0,200}(?:/[\w.@=+-]+|\.(?:log|txt|out|err))):")
SAMPLES = {
    b"job.log:": Stated(label="job.log"),
    b"logs/rank0/stdout:": Stated(label="logs/rank0/stdout"),
}
