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
from repository import ROOT, TESTS

import nccl_inspect
from nccl_inspect import grammar_exports
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.grammar import files
from nccl_inspect.grammar.production import Production
from nccl_inspect.grammar.shape import Shape
from nccl_inspect.grammar_exports import grok, vector
from nccl_inspect.grammar_exports.events import groups, is_shown, ordered, typed
from nccl_inspect.grammar_exports.lnav import column
from nccl_inspect.grammar_exports.patterns import AUTOMATON, BACKTRACKING, Syntax, shapes, translated
from nccl_inspect.ingest.lines import prefix

LOGS = ("efa-provider-missing-socket-fallback", "timestamps", "v2.19.4-socket-2node", "v2.30.7-shm-4gpu")
MODULES = ROOT / "build" / "editors" / "node_modules"
PRODUCTIONS = [one for file in files.shipped() for one in files.read(file.read_text(encoding="utf-8"), file.name)]


def log(name: str) -> Path:
    return ROOT / "sample_logs" / name / "job.log"


@cache
def exported(name: str) -> dict[str, str]:
    return grammar_exports.load(name).export(PRODUCTIONS)


def main(name: str) -> str:
    return next(iter(exported(name).values()))


def samples(productions: list[Production]) -> list[tuple[Production, str]]:
    return [(production, sample) for production in productions for sample in production.samples]


def fields_of(production: Production, message: str) -> dict[str, Any]:
    """What the reader makes of a message, without flags and lists, which are text elsewhere."""
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
    assert all(text.endswith("\n") for text in exported(name).values())
    assert module.USE.format(out="x")


def _named(shape: Shape, syntax: Syntax) -> str:
    names = {group: name for group, (name, _) in groups(shape).items() if is_shown(name)}

    def capture(group: int, text: str) -> str:
        return f"(?P<{names[group]}>{text})" if group in names else f"(?:{text})"

    return translated(shape, syntax, capture)


@pytest.mark.slow
@pytest.mark.parametrize("syntax", (BACKTRACKING, AUTOMATON))
def test_translated_patterns_read_what_the_reader_reads(syntax: Syntax) -> None:
    for production in PRODUCTIONS:
        if syntax is AUTOMATON and not vector.is_possible(production):
            continue
        ways = [_named(shape, syntax) for shape in shapes(production)]
        for sample in production.samples:
            found = next(filter(None, (regex.fullmatch(way, sample) for way in ways)), None)
            assert found, f"{production.name}: {sample}"
            for name, value in fields_of(production, sample).items():
                if production.name != "topology-path-steps":  # a repeated name: the reader keeps the last
                    assert is_same(value, found.groupdict().get(name)), f"{production.name} {name}: {sample}"


def test_orders_that_contradict_each_other_have_none() -> None:
    assert ordered([["a", "c"], ["a", "b", "c"]]) == ["a", "b", "c"]
    assert ordered([["a", "b"], ["b", "a"]]) is None


@pytest.mark.slow
def test_the_document_fits_its_schema() -> None:
    document = json.loads(main("json"))
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
    head = regex.compile(json.loads(main("json"))["head"]["pattern"])
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
    format_.write_text(main("lnav"), encoding="utf-8")

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
        document = json.loads(next(iter(grammar_exports.load("lnav").export(own).values())))
        for entry in document["nccl_log"]["regex"].values():
            assert "[]" not in entry["pattern"]


def test_lnav_has_a_table_of_connections(lnav: Any) -> None:
    rows = lnav("SELECT src, dst, transport, net FROM nccl_channel_connect", log(LOGS[0]))
    events = [one for one in nccl_inspect.events(str(log(LOGS[0]))) if type(one).__name__ == "ChannelConnect"]
    assert [(row["src"], row["dst"]) for row in rows] == [(one.src, one.dst) for one in events]  # type: ignore[attr-defined]
    assert {row["transport"] for row in rows} == {one.transport for one in events}  # type: ignore[attr-defined]


# --- editors ------------------------------------------------------------------------------------------------------


def tokens(tmp_path: Path, lines: list[str]) -> list[list[tuple[str, list[str]]]]:
    """What Visual Studio Code makes of lines."""
    node = shutil.which("node")
    if node is None or not (MODULES / "vscode-textmate").is_dir():
        pytest.skip("no vscode-textmate here: make editors (needs node and npm)")
    grammar, text = tmp_path / "grammar.json", tmp_path / "job.log"
    grammar.write_text(main("textmate"), encoding="utf-8")
    text.write_text("\n".join(lines), encoding="utf-8")
    script = TESTS / "data" / "tokens.js"
    done = subprocess.run(
        [node, str(script), str(MODULES), str(grammar), str(text)], capture_output=True, text=True, timeout=120
    )
    assert not done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_an_editor_sees_every_message_with_fields(tmp_path: Path) -> None:
    known = samples([one for own in typed(PRODUCTIONS).values() for one in own])
    lines = tokens(tmp_path, [f"host-1:42:43 [0] NCCL INFO {sample}" for _, sample in known])
    for (production, sample), line in zip(known, lines, strict=True):
        assert "".join(text for text, _ in line).endswith(sample)
        assert any(scope.startswith("meta.message.") for _, scopes in line for scope in scopes), production.name


def test_an_editor_sees_the_parts_of_a_line(tmp_path: Path) -> None:
    info, warning, other = tokens(
        tmp_path,
        [
            "host-1:42:43 [0] NCCL INFO Channel 00/0 : 3[3] -> 4[0] [send] via NET/IB/2/GDRDMA",
            "[2026-11-20 23:14:57] host-1:42:43 [1] bootstrap.cc:115 NCCL WARN Bootstrap : no socket interface found",
            "step 12 NCCL is fast",
        ],
    )
    scopes = {text: names[-1] for text, names in info}
    assert scopes["host-1"] == "entity.name.tag.host.nccl"
    assert scopes["NET"] == "storage.type.transport.nccl"
    assert scopes["/GDRDMA"] == "support.constant.gdr.nccl"
    assert {text: names[-1] for text, names in warning}["WARN"] == "markup.deleted.level.warning.nccl"
    assert warning[-1][1][-1] == "markup.deleted.message.error.nccl"
    assert [(text, scopes) for text, scopes in other] == [("step 12 NCCL is fast", ["text.log.nccl"])]


# --- collectors ---------------------------------------------------------------------------------------------------


def patterns() -> dict[str, str]:
    lines = (line.strip() for line in main("grok").splitlines())
    return dict(line.split(" ", 1) for line in lines if not line.startswith("#"))


@pytest.mark.slow
def test_grok_reads_every_message() -> None:
    pygrok = pytest.importorskip("pygrok", reason="no pygrok here")
    known = patterns()
    for production in PRODUCTIONS[::5] + typed(PRODUCTIONS)["ChannelConnect"]:
        if production.foreign:
            continue
        parser = pygrok.Grok(f"^%{{{grok.name(production)}}}", custom_patterns=known)
        for sample in production.samples:
            found = parser.match(sample)
            assert found is not None, f"{production.name}: {sample}"
            for name, value in fields_of(production, sample).items():
                assert is_same(value, found.get(grok.field(name))), f"{production.name} {name}: {sample}"


@pytest.mark.slow
def test_grok_reads_a_line() -> None:
    pygrok = pytest.importorskip("pygrok", reason="no pygrok here")
    line = "[2026-11-20 23:14:57] host-1:42:43 [1] init.cc:737 NCCL WARN Duplicate GPU detected"
    found = pygrok.Grok("%{NCCL_LINE}", custom_patterns=patterns()).match(line)
    assert found["host"] == "host-1" and found["pid"] == 42 and found["device"] == 1 and found["level"] == "WARN"
    assert found["location"] == "init.cc:737" and found["message"] == "Duplicate GPU detected"
    line = "host-1:42:43 [0] NCCL INFO Channel 00/0 : 3[3] -> 4[0] [send] via NET/IB/2/GDRDMA"
    event = pygrok.Grok("^%{NCCL_HEAD} %{NCCL_EVENT_CHANNEL_CONNECT}", custom_patterns=patterns()).match(line)
    assert (event["src"], event["dst"], event["transport"], event["nic_index"]) == (3, 4, "NET", 2)


@pytest.mark.slow
def test_vector_reads_the_messages_of_events() -> None:
    pyvrl = pytest.importorskip("pyvrl", reason="no pyvrl here")
    program = pyvrl.Transform(main("vector") + ".\n")
    for event, own in typed(PRODUCTIONS).items():
        for production, sample in samples(own):
            nccl = program.remap({"message": f"host-1:42:43 [0] NCCL INFO {sample}"})["nccl"]
            assert nccl["host"] == "host-1" and nccl["pid"] == 42
            if vector.is_possible(production):
                assert nccl["event"] == event, f"{production.name}: {sample}"
                for name, value in fields_of(production, sample).items():
                    if nccl["production"] == production.name and isinstance(value, int | str):
                        assert is_same(value, nccl["fields"].get(name)), f"{production.name} {name}: {sample}"
    assert "nccl" not in program.remap({"message": "step 12"})


# --- the command --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_counts_lists_and_writes(tmp_path: Path) -> None:
    assert f"{len(PRODUCTIONS)}" in invoke("grammar").stdout.splitlines()[-1]
    assert "Channel {channel:02}" in invoke("grammar", "--dialect", "nccl").stdout
    assert invoke("grammar", "--export", "grok", "--dialect", "fastsocket").stdout.startswith("# Written by")
    invoke("grammar", "--export", "textmate", "--out", str(tmp_path / "nccl-log"))
    assert json.loads((tmp_path / "nccl-log" / "package.json").read_text(encoding="utf-8"))["name"] == "nccl-log"
    invoke("grammar", "--export", "lnav", "--out", str(tmp_path / "nccl_log.json"))
    assert (tmp_path / "nccl_log.json").read_text(encoding="utf-8") == main("lnav")


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(NcclInspectError, match="no dialect 'mpi'; choose from aws-ofi-nccl"):
        invoke("grammar", "--dialect", "mpi")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(NcclInspectError, match="2 files do not fit into one file; name a folder"):
        invoke("grammar", "--export", "vector", "--out", str(file))
