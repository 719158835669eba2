"""``docker service logs``: task, its id and its node before every line."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = b"abcdefghijklmnopqrstuvwxyz0123456789"
PATTERN = re.compile(rb"(?P<label>[a-z0-9][\w.-]{0,120}\.\d{1,5}\.[a-z0-9]{1,30}@[\w.-]{1,80}) +\| ")
SAMPLES = {
    b"trainer.1.ud8q2p7x1m3v@node-1    | ": Stated(label="trainer.1.ud8q2p7x1m3v@node-1"),
}
