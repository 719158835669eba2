"""Imports point one way, and modules stay small enough to be read at once."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "nccl_inspect"
MODULES = sorted(file.relative_to(PACKAGE).with_suffix("").as_posix() for file in PACKAGE.rglob("*.py"))
MAX_LINES = 400

LAYERS = [
    {"interruption"},
    {"_version", "errors", "text", "wording", "records", "discovery", "ports", "times", "masking", "progress"},
    {"event", "levels", "toml", "outputs", "manual", "garbage", "processes"},
    {"event_types"},
    {"ingest", "collecting"},
    {"running"},
    {"grammar"},
    {"model"},
    {"platforms", "topology"},
    {"artifacts"},
    {"impact", "culprits"},
    {"rules"},
    {"picture", "answers"},
    {"report"},
    {"drawing", "traffic"},
    {"jobs"},
    {"workers"},
    {"distributed"},
    {"reading", "tables", "following"},
    {"event_stream", "watching", "configuration", "policy", "differences", "exports", "grammar_exports"},
    {"anonymous", "selection", "leads"},
    {"acceptance", "guarding", "monitoring", "explaining"},
    {""},  # nccl_inspect itself: what a program imports
    {"assistant"},
    {"cli"},
    {"kubectl"},
    {"__main__"},
]
"""What each part may use: what stands before it. The last ones sit on top of all."""
ON_TOP = {"pytest_plugin", "runner"}
"""Parts beside the command line, should they exist."""


def part_of(module: str) -> str:
    """The package or top-level module that a module is in; empty for the package itself."""
    first = module.split("/")[0]
    return "" if first == "__init__" else first


def rank_of(part: str) -> int:
    if part in ON_TOP:
        return len(LAYERS)
    return next(rank for rank, parts in enumerate(LAYERS) if part in parts)


@cache
def imports_of(module: str) -> frozenset[str]:
    """Modules of the package that a module imports, wherever in its text, without the root in their names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found.update(_targets(node.module or "", [alias.name for alias in node.names]))
    return frozenset(name.partition(".")[2] for name in found if name.partition(".")[0] == "nccl_inspect")


def _targets(module: str, names: list[str]) -> set[str]:
    """``from nccl_inspect import platforms`` imports the part, not the package."""
    if module != "nccl_inspect":
        return {module}
    return {f"{module}.{name}" if name in _parts() else module for name in names}


@cache
def _parts() -> frozenset[str]:
    return frozenset(part_of(module) for module in MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_lies_below_it(module: str) -> None:
    own = part_of(module)
    for target in imports_of(module):
        part = target.split(".")[0]
        if part != own:
            assert rank_of(part) < rank_of(own), f"{module} imports {target}"


def test_every_part_has_its_layer() -> None:
    known = ON_TOP.union(*LAYERS)
    assert {part_of(module) for module in MODULES} <= known


def test_of_the_grammar_only_the_scanner_knows_how_lines_begin() -> None:
    allowed = {
        "grammar/scanner",
        "grammar/broken",
        "grammar/bulk",
        "grammar/counts",
        "grammar/excerpts",
        "grammar/meaning",
    }
    users = {
        module
        for module in MODULES
        if part_of(module) == "grammar" and any(target.startswith("ingest") for target in imports_of(module))
    }
    assert users <= allowed


def test_parts_of_one_layer_do_not_import_each_other() -> None:
    for module in MODULES:
        own = part_of(module)
        for target in imports_of(module):
            part = target.split(".")[0]
            if part != own and own and part and own not in ON_TOP and part not in LAYERS[0]:
                assert rank_of(part) != rank_of(own), f"{module} imports {target}"


def test_rules_know_nothing_of_files_and_formats() -> None:
    for module in MODULES:
        if part_of(module) == "rules":
            assert not {target.split(".")[0] for target in imports_of(module)} & {"ingest", "grammar", "report", "cli"}


def test_formats_and_commands_do_not_import_their_siblings() -> None:
    shared = {
        "report": (
            *("words", "tables", "columns", "host_matrix", "beside", "digest", "gaps", "head", "folding"),
            *("jobs", "markup", "page"),
        ),
        "cli": ("shared", "filters", "formats", "questions", "several", "writing"),
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
