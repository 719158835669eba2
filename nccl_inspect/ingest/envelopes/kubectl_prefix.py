"""``kubectl logs --prefix``: ``[pod/NAME/CONTAINER] `` before every line."""

import re

PATTERN = re.compile(rb"\[(?P<label>pod/[^\]\s]+)\] ")
SAMPLES = (b"[pod/llama-3-8b-node-0-0/trainer] ",)
