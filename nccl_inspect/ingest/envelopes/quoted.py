"""Lines in quotes: Ansible's ``stdout_lines``, and lists and bytes as Python prints them."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Stated, quoted_reader

FIRST = b"\"'b \t,["
OPENING = re.compile(rb"[\s,\[]*b?[\"'](?!\w{1,40}[\"']\s*:)")
READ = quoted_reader
SAMPLES = {
    b'        "LINE",': Stated(),
    b"b'LINE'": Stated(),
}
