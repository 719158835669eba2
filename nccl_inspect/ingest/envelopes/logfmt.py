"""logfmt: ``ts=… level=info msg="…"``, as Loki, Prometheus and Go's loggers write it."""

import re

from nccl_inspect.ingest.lines.envelope_fields import Inner, Stated, quoted_text
from nccl_inspect.util.text import decode

FIRST = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_@"
_VALUE = rb"\"(?:[^\"\\]|\\.)*+\"|[^\s\"]*+"
_PAIR = re.compile(rb"(?<!\S)([A-Za-z_@][\w.@-]{0,60}+)=(" + _VALUE + rb")(?:[ \t]+|$)")
_MESSAGES = "msg", "message", "log", "line"
_TIMES = "ts", "time", "timestamp", "t"
_LABELS = "pod", "pod_name", "host", "hostname", "instance", "container"
OPENING = re.compile(rb"(?:[A-Za-z_@][\w.@-]{0,60}+=(?:" + _VALUE + rb")[ \t]+){0,20}(?:msg|message|log|line)=\"")


def read(line: bytes) -> list[Inner]:
    """The line in a record."""
    fields = {decode(name): quoted_text(value) for name, value in _PAIR.findall(line)}
    text = next((fields[name] for name in _MESSAGES if fields.get(name)), b"")
    time = next((decode(fields[name]) for name in _TIMES if fields.get(name)), None)
    label = "/".join(decode(fields[name]) for name in _LABELS if fields.get(name)) or None
    rank = fields.get("rank", b"")
    return [Inner(text, Stated(time, label, int(rank) if rank.isdigit() else None))] if text else []


READ = read
SAMPLES = {
    b'ts=2026-11-20T23:13:07.071Z level=info pod=llama-0 msg="LINE"': Stated(
        time="2026-11-20T23:13:07.071Z", label="llama-0"
    ),
    b'time="2026-11-20T23:13:07Z" level=info msg="LINE" rank=3': Stated(time="2026-11-20T23:13:07Z", rank=3),
}
