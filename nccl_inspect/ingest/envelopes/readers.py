"""Reads what a line of JSON, CSV, logfmt or quotes holds, as collectors and clouds write and export lines of a log."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from nccl_inspect.ingest.envelopes import ISO, PART, Inner, Stated, join_node
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.text import decode

_DECODER = json.JSONDecoder(strict=False)
MESSAGES = (
    *("LogEntry", "LogMessage", "body", "message", "@message", "attributes.message", "Message", "Content"),
    *("_source.message", "_source.log", "jsonPayload.message", "textPayload", "Line", "MESSAGE"),
    *("body.stringValue", "msg", "_raw", "result._raw", "log", "line"),
)  # where a record has the line, by paths of names; for many loggers, ``line`` is that of their own source
_TIMES = (
    *("timestamp", "@timestamp", "time", "ts", "date", "TimeGenerated", "Date", "Time", "tsNs", "_time"),
    *("result._time", "ingestionTime", "@ingestionTime", "attributes.timestamp", "_source.@timestamp", "_source.time"),
    *("_SOURCE_REALTIME_TIMESTAMP", "__REALTIME_TIMESTAMP", "timeUnixNano", "observedTimeUnixNano"),
)  # where it has the time: the first counts
_LABELS = (
    *("PodName", "ContainerName", "Name", "Service"),
    *("kubernetes.pod_name", "kubernetes.pod.name", "kubernetes.container_name", "container_name"),
    *("resource.labels.pod_name", "resource.labels.container_name", "labels.pod", "labels.container", "fields.pod"),
    *("_source.kubernetes.pod.name", "_source.kubernetes.pod_name", "_source.kubernetes.container.name"),
    *("_source.kubernetes.container_name", "attributes.service"),
    *("resources_string.k8s.pod.name", "resources.k8s.pod.name", "attrs.tag", "attrs.name"),
    *("logStreamName", "@logStream", "_SYSTEMD_UNIT"),
)  # where it has the names of the printer: all that are there count
_NODES = (
    *("Computer", "Host", "host.name", "hostname", "host", "_source.host.name", "attributes.host", "result.host"),
    "_HOSTNAME",
)  # where it has the machine that the collector runs on
_HOLDERS = "events", "logEvents"  # lists of records in an object (CloudWatch)
_MAX_DEPTH = 8  # more than any path has names
_MEMBER = compile_later(rb'[\s,]*("[@\w.]{1,40}"\s*:\s*".*")[\s,}\]]*', re.DOTALL)


def read_json(line: bytes) -> list[Inner]:
    """Return the lines in the records of an object; of an unknown kind the text of NCCL in it, or the longest one."""
    document = _parse(line)
    holders = [document.get(name) for name in _HOLDERS] if isinstance(document, dict) else [document]
    records = next((some for some in holders if isinstance(some, list)), [])
    fields = [dict(flatten(record)) for record in (*records, document) if isinstance(record, dict)]
    if inners := [inner for record in fields if (inner := _read_record(record))]:
        return inners
    texts = (value for _, value in flatten(document) if isinstance(value, str)) if isinstance(document, dict) else ()
    return _choose_text(texts)


def _read_record(fields: dict[str, Any]) -> Inner | None:
    texts = {path: text for path in MESSAGES if path in fields and (text := text_of(fields[path])) is not None}
    if not texts:
        return None
    path = choose_name(texts)
    text = texts[path]
    times = (_write(fields[path]) for path in _TIMES if path in fields)
    labels = dict.fromkeys([_write(fields[path]) for path in _LABELS if path in fields])
    nodes = (_write(fields[path]) for path in _NODES if path in fields)
    rank = _write(fields.get("rank"))
    before = path[: path.rfind(".") + 1]  # ``_source.stream`` stands beside ``_source.log``
    stream, tag = (fields.get(before + name, fields.get(name)) for name in ("stream", "logtag"))
    is_cut = path == before + "log" and stream and len(text) >= PART and not text.endswith(b"\n")  # by Docker
    return Inner(
        text,
        Stated(
            next(filter(None, times), None),
            join_node("/".join(filter(None, labels)), next(filter(None, nodes), None)),
            int(rank) if rank.isdecimal() else None,
            _write(stream),
            bool(is_cut) or tag == "P",
        ),
    )


def choose_name(texts: dict[str, bytes]) -> str:
    """Return which of the members that may hold the line does: one with a line of NCCL, else one that is not blank."""
    return max(texts, key=lambda name: (b"NCCL " in texts[name], not texts[name].isspace()))


def flatten(record: dict[str, Any], before: str = "", depth: int = _MAX_DEPTH) -> Iterator[tuple[str, Any]]:
    """Yield the values of an object with their paths (``kubernetes.pod_name``): a name with dots may be one name."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{before}{name}.", depth - 1) if depth else ()
        elif value != "":
            yield before + name, value


def _write(value: Any) -> str:
    if not isinstance(value, str | int | float):
        return ""
    text = str(value)
    return text if text.isascii() else decode(text_of(text) or b"")


def text_of(value: Any) -> bytes | None:
    """Return the bytes that a value of JSON stands for; None when it is not a text."""
    if not isinstance(value, str):
        return None
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return value.encode("utf-8", "replace")


def _parse(line: bytes) -> Any:
    """Return what the JSON in a line stands for; None when it is none."""
    text = line.strip(b" \t\r,")
    if member := _MEMBER.fullmatch(line):
        text = b"{" + member[1] + b"}"
    for shortened in (text, text.lstrip(b"["), text.rstrip(b"]")):
        try:
            return _DECODER.decode(decode(shortened))
        except (ValueError, RecursionError):
            continue
    return None


_TIME = compile_later((ISO + rb"|\d{10,19}").decode("ascii"))  # what is nothing but a time


def _choose_text(texts: Iterable[str]) -> list[Inner]:
    """Return the text of NCCL among some, else the longest one that is not a time."""
    texts = list(texts)
    times = [text for text in texts if _TIME.fullmatch(text)]
    messages = [text for text in texts if text not in times]
    best = text_of(max(messages, key=lambda text: ("NCCL " in text, len(text)), default=""))
    return [Inner(best, Stated(times[0] if times else None))] if best else []


_PAIR = compile_later(rb"(?<!\S)([A-Za-z_@][\w.@-]{0,60}+)=(\"(?:[^\"\\]|\\.)*+\"|[^\s\"]*+)(?:[ \t]+|$)")
_LOGFMT_MESSAGES = "msg", "message", "log", "line"
_LOGFMT_TIMES = "ts", "time", "timestamp", "t"
_LOGFMT_LABELS = "pod", "pod_name", "host", "hostname", "instance", "container"


def read_logfmt(line: bytes) -> list[Inner]:
    """Return the line in a record."""
    fields = {decode(name): _unquote(value) for name, value in _PAIR.findall(line)}
    texts = {name: fields[name] for name in _LOGFMT_MESSAGES if fields.get(name)}
    time = next((decode(fields[name]) for name in _LOGFMT_TIMES if fields.get(name)), None)
    label = "/".join(decode(fields[name]) for name in _LOGFMT_LABELS if fields.get(name)) or None
    rank = fields.get("rank", b"")
    stated = Stated(time, label, int(rank) if rank.isdigit() else None)
    return [Inner(texts[choose_name(texts)], stated)] if texts else []


def _unquote(value: bytes) -> bytes:
    """Return the bytes that a value stands for, which may be in quotes as JSON writes them."""
    if not value.startswith(b'"'):
        return value
    try:
        return text_of(_DECODER.decode(decode(value))) or b""
    except ValueError:
        return value[1:-1]


def read_csv(line: bytes) -> list[Inner]:
    """Return the log line in a row: the cell of NCCL, else the longest that is not a time."""
    import csv  # only logs in CSV need it

    try:
        return _choose_text(next(csv.reader([decode(line)], strict=True), []))
    except csv.Error:
        return []


_STRING = compile_later(rb"""[\s,\[]*(b?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))[\s,\]]*""")


def read_quoted(line: bytes) -> list[Inner]:
    """Return the line that a string stands for, as JSON or Python writes it."""
    from ast import literal_eval  # few logs are such

    string = _STRING.fullmatch(line)
    try:
        value = literal_eval(decode(string[1])) if string else ""
    except (ValueError, SyntaxError):
        return []
    inner = value if isinstance(value, bytes) else text_of(value)
    return [Inner(inner)] if inner else []
