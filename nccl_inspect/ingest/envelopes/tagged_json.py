"""A time, a stream or tag, and an object: ``aws logs tail`` of logs of Fluent Bit, Fluentd's files and output."""

import re

from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines.envelope_fields import ISO, Inner, Stated
from nccl_inspect.util.text import decode

FIRST = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_/"
OPENING = re.compile(
    rb"(?:(?P<time>"
    + ISO
    + rb"(?: [+-]\d{4})?)[ \t]+)?(?P<label>[\w./@$#-]{1,300})(?:\[\d{1,10}\])?:?[ \t]+(?=\{\s*\")"
)


def read(line: bytes) -> list[Inner]:
    """The lines in the object."""
    match = OPENING.match(line)
    if match is None:
        return []
    outer = Stated(decode(match["time"]) if match["time"] else None, decode(match["label"]))
    return [Inner(inner.text, inner.stated.within(outer)) for inner in envelopes.contents(line[match.end() :])]


READ = read
SAMPLES = {
    b'2026-11-20T23:13:07.071000+00:00 ip-10-0-0-1.application.llama-0 {"log":"LINE","stream":"stdout"}': Stated(
        time="2026-11-20T23:13:07.071000+00:00", label="ip-10-0-0-1.application.llama-0", stream="stdout"
    ),
    b'2026-11-20T23:13:07+00:00\tkubernetes.llama\t{"log":"LINE\\n","kubernetes":{"pod_name":"llama-0"}}': Stated(
        time="2026-11-20T23:13:07+00:00", label="kubernetes.llama llama-0"
    ),
    b'2026-11-20 23:13:07.071868000 +0000 kube.llama: {"log":"LINE"}': Stated(
        time="2026-11-20 23:13:07.071868000 +0000", label="kube.llama"
    ),
}
