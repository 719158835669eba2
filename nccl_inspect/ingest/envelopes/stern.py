"""``stern``: pod and container before every line, with their namespace if there are several."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = b"abcdefghijklmnopqrstuvwxyz0123456789"
PATTERN = re.compile(
    rb"(?P<label>(?:[a-z][a-z0-9-]* )?[a-z0-9][a-z0-9.]*-[a-z0-9.-]+ (?:\xe2\x80\xba )?[a-z0-9][a-z0-9-]*) "
)
SAMPLES = {
    b"llama-node-0-0 trainer ": Stated(label="llama-node-0-0 trainer"),
    b"ml llama-node-0-0 trainer ": Stated(label="ml llama-node-0-0 trainer"),
    b"llama-node-0-0 \xe2\x80\xba trainer ": Stated(label="llama-node-0-0 › trainer"),
}
