"""pdsh, dsh, Ansible and DeepSpeed's launcher: the node before every line."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"
PATTERN = re.compile(
    rb"(?![\w.]{0,80}(?:Error|Exception): )"  # the last line of a Python traceback
    rb"(?!slurmstepd(?:-[\w.-]{0,80})?: error: )"  # the step's own daemon, with its node
    rb"(?P<label>[A-Za-z_][\w.-]{0,80}|\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}): "
)
SAMPLES = {
    b"node-1: ": Stated(label="node-1"),
    b"10.0.0.1: ": Stated(label="10.0.0.1"),
}
