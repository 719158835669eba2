"""Numbers of editors, ``cat -n`` and ``grep -n``; Slurm's ``%t:`` looks alike, so that no rank is read from it."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated

FIRST = b" 0123456789"
PATTERN = re.compile(rb" {0,8}\d{1,9}(?:\xe2\x86\x92|\t|:(?! )| ?\xe2\x94\x82 ?| ?\| ?)")
SAMPLES = {
    b"  12\xe2\x86\x92": Stated(),
    b"12:": Stated(),
    b"    12\t": Stated(),
    b"12 | ": Stated(),
}
