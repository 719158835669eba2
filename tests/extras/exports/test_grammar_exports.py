"""The grammar for other programs: what they read is what the reader reads, asked of those programs where they are."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import regex
from command_line import invoke
from jsonschema import Draft202012Validator
from repository import ROOT

import nccl_inspect
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras import exports as grammar_exports
from nccl_inspect.extras.exports.lnav import column
from nccl_inspect.extras.exports.shared import field_groups, is_shown, merge_orders, split_message, translate
from nccl_inspect.grammar import files
from nccl_inspect.grammar.notation import Shape
from nccl_inspect.grammar.production import Production
from nccl_inspect.ingest.lines import prefix

LOGS = ("efa-provider-missing-socket-fallback", "timestamps", "v2.19.4-socket-2node", "v2.30.7-shm-4gpu")
PRODUCTIONS = [one for file in files.list_files() for one in files.read(file.read_text(encoding="utf-8"), file.name)]


def log(name: str) -> Path:
    return ROOT / "sample_logs" / name / "job.log"


@cache
def export_grammar(name: str) -> str:
    return str(grammar_exports.load(name).export(PRODUCTIONS))


def fields_of(production: Production, message: str) -> dict[str, Any]:
    """Return what the reader makes of a message, without flags and lists, which are text elsewhere."""
    values = production.read(message.encode()) or {}
    return {name: value for name, value in values.items() if is_shown(name) and not isinstance(value, bool | tuple)}


def is_same(value: object, text: object) -> bool:
    if value is None or text is None:
        return value is text
    if isinstance(value, int) and isinstance(text, str):
        return value in (int(text, 16) if re.fullmatch("[0-9a-f]+", text) else None, _number(text))
    return str(value) == str(text) or (isinstance(value, float) and value == float(str(text)))


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r" *-?\d+", text) else None


@pytest.mark.slow
@pytest.mark.parametrize("name", grammar_exports.names())
def test_an_export_is_the_same_each_time(name: str) -> None:
    module = grammar_exports.load(name)
    part = PRODUCTIONS[::40]
    assert module.export(part) == module.export(part)
    assert export_grammar(name).endswith("\n")
    assert module.USE.format(out="x")


def _name_fields(shape: Shape, backtracks: bool) -> str:
    names = {group: name for group, (name, _) in field_groups(shape).items() if is_shown(name)}

    def capture(group: int, text: str) -> str:
        return f"(?P<{names[group]}>{text})" if group in names else f"(?:{text})"

    return translate(shape, backtracks, capture)


@pytest.mark.slow
@pytest.mark.parametrize("backtracks", (True, False))
def test_translated_patterns_read_what_the_reader_reads(backtracks: bool) -> None:
    for production in PRODUCTIONS:
        if not backtracks and "(?!" in production.shape.pattern:
            continue  # its document says that it is not exact
        ways = [_name_fields(shape, backtracks) for shape in split_message(production)]
        for sample in production.samples:
            found = next(filter(None, (regex.fullmatch(way, sample) for way in ways)), None)
            assert found, f"{production.name}: {sample}"
            for name, value in fields_of(production, sample).items():
                if production.name != "topology-path-steps":  # a repeated name: the reader keeps the last
                    assert is_same(value, found.groupdict().get(name)), f"{production.name} {name}: {sample}"


def test_orders_that_contradict_each_other_have_none() -> None:
    assert merge_orders([["a", "c"], ["a", "b", "c"]]) == ["a", "b", "c"]
    assert merge_orders([["a", "b"], ["b", "a"]]) is None


@pytest.mark.slow
def test_the_document_fits_its_schema() -> None:
    document = json.loads(export_grammar("json"))
    schema = ROOT / "nccl_inspect" / "schema" / "nccl-inspect-grammar-1.json"
    Draft202012Validator(json.loads(schema.read_text(encoding="utf-8"))).validate(document)
    assert len(document["messages"]) == len(PRODUCTIONS)
    keys = [(one["dialect"], one["family"], one["name"]) for one in document["messages"]]
    assert keys == sorted(keys)
    assert set(document["messages"][0]) == set(
        json.loads(schema.read_text(encoding="utf-8"))["properties"]["messages"]["items"]["required"]
    )


@pytest.mark.slow
def test_the_head_is_that_of_the_reader() -> None:
    head = regex.compile(json.loads(export_grammar("json"))["head"]["pattern"])
    for line in log("timestamps").read_bytes().splitlines():
        parts = prefix.split(line)
        if parts is None or (origin := prefix.parse(parts[0])) is None:
            continue
        found = head.match(line.decode())
        assert found and found["host"] == origin.host and int(found["pid"]) == origin.pid, line
        assert found["timestamp"] == origin.time, line


# --- lnav ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lnav(tmp_path_factory: pytest.TempPathFactory) -> Any:
    program = shutil.which("lnav")
    if program is None:
        pytest.skip("no lnav here (Debian: apt-get install lnav)")
    home = tmp_path_factory.mktemp("lnav")
    env = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "TERM": "xterm"}
    format_ = home / "nccl_log.json"
    format_.write_text(export_grammar("lnav"), encoding="utf-8")

    def run(*arguments: str) -> str:
        done = subprocess.run([program, *arguments], env=env, cwd=home, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and "error" not in done.stderr, done.stderr
        return done.stdout

    run("-i", str(format_))
    assert "error" not in run("-C")

    def rows(query: str, path: Path) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(run("-n", "-c", f";{query}", "-c", ":write-json-to -", str(path)))
        return found

    return rows


@pytest.mark.slow
@pytest.mark.parametrize("name", LOGS)
def test_lnav_has_the_fields_of_the_events(lnav: Any, name: str) -> None:
    rows = lnav("SELECT log_body AS text, * FROM nccl_log", log(name))
    by_message = {row["text"].partition("\n")[0]: row for row in rows}
    compared = 0
    for event in nccl_inspect.events(str(log(name))):
        kind = type(event).__name__
        if event.level in ("OTHER", "VERSION") or kind in ("Message", "Notice"):
            continue
        row = by_message[event.message]
        production = next(one for one in PRODUCTIONS if one.name == event.production)
        for field, value in fields_of(production, event.message).items():
            assert is_same(value, row.get(column(field))), f"{event.message}: {field}"
            compared += value is not None
    assert compared > 100


def test_the_format_of_any_dialect_is_a_sound_one() -> None:
    for dialect in {production.dialect for production in PRODUCTIONS}:
        own = [production for production in PRODUCTIONS if production.dialect == dialect]
        document = json.loads(grammar_exports.load("lnav").export(own))
        for entry in document["nccl_log"]["regex"].values():
            assert "[]" not in entry["pattern"]


def test_lnav_has_a_table_of_connections(lnav: Any) -> None:
    rows = lnav("SELECT src, dst, transport, net FROM nccl_channel_connect", log(LOGS[0]))
    events = [one for one in nccl_inspect.events(str(log(LOGS[0]))) if type(one).__name__ == "ChannelConnect"]
    assert [(row["src"], row["dst"]) for row in rows] == [(one.src, one.dst) for one in events]  # type: ignore[attr-defined]
    assert {row["transport"] for row in rows} == {one.transport for one in events}  # type: ignore[attr-defined]


# --- the command --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_counts_lists_and_writes(tmp_path: Path) -> None:
    assert f"{len(PRODUCTIONS)}" in invoke("grammar").stdout.splitlines()[-1]
    assert "Channel {channel:02}" in invoke("grammar", "--dialect", "nccl").stdout
    assert invoke("grammar", "--export", "json", "--dialect", "fastsocket").stdout.startswith('{\n "schema"')
    invoke("grammar", "--export", "lnav", "--out", str(tmp_path))
    assert (tmp_path / "nccl_log.json").read_text(encoding="utf-8") == export_grammar("lnav")


def test_the_command_says_what_is_wrong() -> None:
    with pytest.raises(NcclInspectError, match="no dialect 'mpi'; choose from aws-ofi-nccl"):
        invoke("grammar", "--dialect", "mpi")
