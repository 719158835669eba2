"""Imports point one way, and modules stay small enough to be read at once."""

from __future__ import annotations

import ast

import pytest
from layers import PACKAGE, imports_of, modules, room_of

MODULES = modules()
MAX_LINES = 400

LAYERS = [
    {"util"},
    {"event", "collecting"},
    {"ingest", "grammar", "running"},
    {"scanning"},
    {"model"},
    {"platforms", "topology", "culprits"},
    {"artifacts"},
    {"judging"},
    {"story"},
    {"rules", "picture", "answers", "judge"},
    {"report"},
    {"pipeline", "drawing", "traffic"},
    {"policy", "differences", "anonymous", "live", "explain", "grammar_exports"},
]
"""The rooms; each may use those in the lines before its own."""
FLOOR = {"errors", "_version"}
"""What all may use."""
FOUND = {f"scanning.{name}" for name in ("counts", "found", "line_table", "connection_table", "spans")}
"""What a scanner gives to the model: data."""
FRONT_DOORS = {"", "cli", "__main__", "kubectl", "assistant", "acceptance", "pytest_plugin"}
"""What may use all: the package itself, which programs import, commands, servers and the tools for tests."""


def rank_of(room: str) -> int:
    """The layer of a room, from 0."""
    if room in FLOOR:
        return -1
    return next((rank for rank, rooms in enumerate(LAYERS) if room in rooms), len(LAYERS))


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_lies_below_it(module: str) -> None:
    own = room_of(module)
    if own in FRONT_DOORS:
        return
    for target in imports_of(module):
        part = target.split(".")[0]
        assert part == own or rank_of(part) < rank_of(own), f"{module} imports {target}"


def test_every_room_has_its_layer() -> None:
    assert {room_of(module) for module in MODULES} == FLOOR.union(FRONT_DOORS, *LAYERS)


def test_the_model_reads_nothing_itself() -> None:
    """It takes in what was found, and knows neither who finds it nor where the lines come from."""
    for module in MODULES:
        if room_of(module) == "model" or module.replace("/", ".") in FOUND:
            read = {
                one for one in imports_of(module) if one.startswith(("scanning.", "ingest.sources", "ingest.exports"))
            }
            assert read <= FOUND, f"{module} imports {sorted(read - FOUND)}"


def test_rules_import_no_other_rule() -> None:
    for module in MODULES:
        if room_of(module) == "rules":
            assert not [target for target in imports_of(module) if target.startswith("rules")], module


def test_every_module_among_the_rules_is_one() -> None:
    for module in MODULES:
        if room_of(module) == "rules" and module != "rules/__init__":
            assert (PACKAGE / f"{module}.md").is_file(), module


def test_rules_know_nothing_of_files_and_formats() -> None:
    for module in MODULES:
        if room_of(module) == "rules":
            assert not {target.split(".")[0] for target in imports_of(module)} & {"ingest", "grammar", "report", "cli"}


def test_formats_and_commands_do_not_import_their_siblings() -> None:
    shared = {
        "report": (
            *("words", "tables", "columns", "host_matrix", "beside", "digest", "gaps", "head", "folding"),
            *("jobs", "markup", "page"),
        ),
        "cli": ("shared", "filters", "formats", "leads", "manual", "questions", "several", "writing"),
    }
    for module in MODULES:
        part, _, name = module.partition("/")
        if part not in shared or name in ("__init__", "", *shared[part]):
            continue
        siblings = {target.split(".")[1] for target in imports_of(module) if target.startswith(f"{part}.")}
        assert siblings <= set(shared[part]), f"{module} imports {sorted(siblings)}"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_fits_on_a_few_screens(module: str) -> None:
    lines = (PACKAGE / f"{module}.py").read_text(encoding="utf-8").count("\n")
    assert lines <= MAX_LINES, f"{lines} lines"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_says_what_it_is_for(module: str) -> None:
    doc = ast.get_docstring(ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8")))
    assert doc or module == "_version", "no docstring"
