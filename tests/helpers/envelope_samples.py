"""The samples of all envelopes, and lines put into them."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable

from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.envelopes import Envelope, Stated


def samples_of(envelope: Envelope) -> dict[bytes, Stated]:
    """Return envelopes of a kind, each with what it states."""
    found = re.findall(r"^sample: (.*)(?:\nstates: (.*))?", envelope.entry, re.MULTILINE)
    return {sample.encode("utf-8", "surrogateescape"): Stated(**json.loads(states or "{}")) for sample, states in found}


ENVELOPES = envelopes.list_envelopes()
PREFIXES = {
    f"{name}-{index}": sample
    for name, envelope in ENVELOPES.items()
    if not envelope.reader
    for index, sample in enumerate(samples_of(envelope))
    if not samples_of(envelope)[sample].partial
}
WHOLE = {
    f"{name}-{index}": sample
    for name, envelope in ENVELOPES.items()
    if envelope.reader
    for index, sample in enumerate(samples_of(envelope))
    if not samples_of(envelope)[sample].partial
}


def fill_sample(sample: bytes, line: bytes) -> bytes:
    """Return a whole-line envelope with a line in it."""
    if ENVELOPES["csv"].pattern.match(sample):
        cell = io.StringIO()
        csv.writer(cell, quoting=csv.QUOTE_ALL).writerow([line.decode("utf-8", "surrogateescape")])
        quoted = cell.getvalue().rstrip("\r\n").encode("utf-8", "surrogateescape")
        return sample.replace(b'"LINE"', b"LINE").replace(b"LINE", quoted)
    if sample == b"b'LINE'":
        return repr(line).encode()
    return sample.replace(b"LINE", json.dumps(line.decode("utf-8", "surrogateescape"))[1:-1].encode())


def wrapper(name: str) -> Callable[[bytes], bytes]:
    if name in PREFIXES:
        return lambda line: PREFIXES[name] + line
    return lambda line: fill_sample(WHOLE[name], line)
