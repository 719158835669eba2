"""Markdown: a line in backticks, maybe one of a list, as it is pasted into issues and chats."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = b"`-*+>"
PATTERN = re.compile(rb"(?:[-*+>] )?`{1,3}(?!`)")
TRAILER = b"`", re.compile(rb"`{1,3} *$")
SAMPLES = {
    b"`": Stated(),
    b"- `": Stated(),
}
