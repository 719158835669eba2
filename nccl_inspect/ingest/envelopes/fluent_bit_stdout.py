"""Fluent Bit's standard output: the number of a record, its tag, its time and its object."""

import re

from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines.envelope_fields import Inner, Stated
from nccl_inspect.util.text import decode

FIRST = b"["
OPENING = re.compile(
    rb"\[\d{1,9}\] (?P<label>[\w./@$#-]{1,300}): \[\[?(?P<time>\d{10}\.\d{1,9})(?:, \{[^{}]*\}\])?, (?=\{\s*\")"
)


def read(line: bytes) -> list[Inner]:
    """The lines in the object."""
    match = OPENING.match(line)
    if match is None:
        return []
    outer = Stated(decode(match["time"]), decode(match["label"]))
    record = line[match.end() :].rstrip().removesuffix(b"]")
    return [Inner(inner.text, inner.stated.within(outer)) for inner in envelopes.contents(record)]


READ = read
SAMPLES = {
    b'[0] kube.llama: [[1795216387.071868123, {}], {"log":"LINE"}]': Stated(
        time="1795216387.071868123", label="kube.llama"
    ),
    b'[0] kube.llama: [1795216387.071868123, {"log":"LINE"}]': Stated(time="1795216387.071868123", label="kube.llama"),
}
