"""``kubectl logs --prefix``: ``[pod/NAME/CONTAINER] `` before every line; kubetail: ``[NAME CONTAINER] ``."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = b"["
PATTERN = re.compile(rb"\[(?P<label>pod/[^\]\s]++|[a-z0-9][a-z0-9.]*+-[a-z0-9.-]++(?: [a-z0-9-]++)?)\] ")
SAMPLES = {
    b"[pod/llama-3-8b-node-0-0/trainer] ": Stated(label="pod/llama-3-8b-node-0-0/trainer"),
    b"[llama-node-0-0 trainer] ": Stated(label="llama-node-0-0 trainer"),
}
