"""What is fuzzed: each target takes bytes, and raises when the tool does what it must never do.

``tools/fuzz.py`` runs them for a while, ``tests/tools/test_fuzz.py`` for a moment and over all inputs that once broke
one.
"""

from __future__ import annotations

import copy
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner
from jsonschema import Draft202012Validator

import nccl_inspect
from nccl_inspect import topology
from nccl_inspect.cli import cli, join_lines
from nccl_inspect.errors import NcclInspectError, TopologyError
from nccl_inspect.extras.gate import cli_check, policy
from nccl_inspect.grammar import engine
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines import prefix
from nccl_inspect.ingest.sources import blocks, streams
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline import configuration, reading
from nccl_inspect.scanning import meaning
from nccl_inspect.util.discovery import modules

VERDICTS = {"ok", "degraded", "failed", "unknown"}
UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What must not reach a terminal: control characters, lone surrogates, marks that turn the direction of text."""
COMMANDS = (
    ("summarize", "-v"),
    ("summarize", "--format", "json"),
    ("paths",),
    ("paths", "--matrix"),
    ("paths", "--format", "csv"),
    ("annotate",),
    ("topology",),
    ("topology", "--format", "dot"),
    ("topology", "--format", "svg"),
    ("traffic",),
    ("check", "--learn"),
)
"""What is run with a log as its last argument."""


class BrokenPromiseError(AssertionError):
    """The tool did what it must never do."""


def require(kept: bool, what: str) -> None:
    """Raise unless something that must always hold does."""
    if not kept:
        raise BrokenPromiseError(what)


def is_safe(text: str) -> bool:
    """Return whether a text can be shown on any terminal."""
    return UNSAFE.search(text) is None


def log(data: bytes) -> None:
    """Read a log, packed or in an archive perhaps: its job is consistent, and its document is as the schema says."""
    job = _read(data)
    if job is None:
        return
    for source in job.sources:
        parts = (source.typed_lines, source.unrecognised_lines, source.damaged_lines)
        # Of several jobs each has its own damaged lines; what else is counted is of the source.
        adds_up = source.nccl_lines == sum(parts) or (job.is_one_of_several and source.nccl_lines > sum(parts))
        require(min(parts) >= 0 and adds_up, f"lines of {source.name}: {source}")
    require(job.verdict in VERDICTS, job.verdict)
    document = json.loads(json.dumps(job.to_dict()))
    error = next(_validator().iter_errors(document), None)
    require(error is None, f"the document breaks the schema: {error}")
    require(all(map(is_safe, _texts(document))), "the document holds control characters")
    learned = cli_check.write_policy(job)
    require(is_safe(learned), "a learned policy holds control characters")
    with _kept(learned.encode()) as path:
        policy.read_policy(path)


def _read(data: bytes) -> Job | None:
    try:
        return nccl_inspect.read(data)
    except NcclInspectError as error:
        _one_line(error)
        return None


def _one_line(error: NcclInspectError) -> None:
    require(is_safe(join_lines(str(error))) and bool(error.message), f"the error cannot be shown: {error!r}")


@cache
def _validator() -> Draft202012Validator:
    text = files("nccl_inspect").joinpath("schema/nccl-inspect-1.json").read_text(encoding="utf-8")
    strict = copy.deepcopy(json.loads(text))
    for part in _objects(strict):
        part["additionalProperties"] = False
    return Draft202012Validator(strict)


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        schema = list(schema.values())
    for value in schema if isinstance(schema, list) else ():
        yield from _objects(value)


def _texts(document: Any) -> Iterator[str]:
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict):
        yield from document
        document = list(document.values())
    for value in document if isinstance(document, list) else ():
        yield from _texts(value)


def ingest(data: bytes) -> None:
    """Read bytes of any kind: lines without line ends, and no more bytes told than there can be."""
    for source in blocks.find(data):
        try:
            for lines in blocks.cut(blocks.raw_blocks(source)):
                require(not any(b"\n" in line for line in lines), "a line holds a line end")
                require(all(len(line) <= 2 * streams.BLOCK for line in lines), "a line is longer than allowed")
        except NcclInspectError as error:
            _one_line(error)


def message(data: bytes) -> None:
    """Parse messages, one on each line: what is recognised is rendered byte for byte but for blanks at its end."""
    grammar = engine.load_grammar()
    for line in data.split(b"\n"):
        for found in (grammar.parse(line), grammar.parse_bare(line), grammar.parse_foreign(line)):
            if found is None:
                continue
            require(found.event.message is not None, "no event")
            match = found.production.match(found.message)
            require(match is not None and found.production.render(match) == found.message, "it does not come back")
            require(found.message.rstrip() == line.rstrip(), "its message is another one")
        text = line.decode("utf-8", "surrogateescape")
        if told := meaning.explain_line(text, grammar):
            require(all(is_safe(value) for _, value, _ in told.fields), "a value holds control characters")


def envelope(data: bytes) -> None:
    """Read lines in envelopes: what is inside them is bytes, and prefixes are taken off to the end."""
    for line in data.split(b"\n"):
        for inner in envelopes.contents(line):
            require(isinstance(inner.text, bytes), "the inner line is no bytes")
        layers = list(envelopes.layers(line))
        require(all(len(layer) <= len(line) for layer in layers), "a layer is longer than its line")
        if found := prefix.split(line):
            origin = prefix.parse(found[0])
            require(origin is None or origin.head == found[0], "the head of a line is lost")


def machine(data: bytes) -> None:
    """Read a topology file: the matrix of nvidia-smi, or XML."""
    text = data.decode("utf-8", "replace")
    for name in modules(topology.__file__):
        reader = import_module(f"nccl_inspect.topology.{name}")
        if reader.recognises(text):
            try:
                found = reader.read(text, "fuzz")
            except TopologyError as error:
                _one_line(error)
                continue
            require(all(0 <= a < found.gpus and 0 <= b < found.gpus for a, b in found.classes), "a pair without GPUs")


def settings(data: bytes) -> None:
    """Read TOML: settings and policies."""
    readers: tuple[Callable[[str], object], ...] = (
        lambda path: configuration.complete_options(reading.Options(), Path(path)),
        policy.read_policy,
    )
    with _kept(data) as path:
        for reader in readers:
            try:
                reader(path)
            except NcclInspectError as error:
                _one_line(error)


def commands(data: bytes) -> None:
    """Run a command that reads a log: it ends in an orderly way, and what it prints is safe; the first byte chooses."""
    if not data:
        return
    command = COMMANDS[data[0] % len(COMMANDS)]
    with _kept(data[1:]) as path:
        result = CliRunner().invoke(cli, [*command, path], standalone_mode=False)
    error = result.exception
    if error is not None and not isinstance(error, NcclInspectError | click.ClickException | SystemExit):
        raise error
    require(is_safe(result.stdout), f"{command} prints control characters")


class _kept:  # noqa: N801 - used like a function
    """Bytes in a file as long as it is entered."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __enter__(self) -> str:
        self._file = tempfile.NamedTemporaryFile(prefix="fuzz-")
        self._file.write(self._data)
        self._file.flush()
        return self._file.name

    def __exit__(self, *_: object) -> None:
        self._file.close()


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (log, ingest, message, envelope, machine, settings, commands)
}
