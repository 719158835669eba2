"""Writes the generated parts of the documentation: ``python docs/generate.py``; ``--check`` only tells what drifted.

Whole pages come from the code (commands, rules, grammar, events, JSON schema). In all other Markdown files the outputs
between ``<!-- output: COMMAND -->`` and ``<!-- end -->`` come from running the command in the root of the repository;
pages with :data:`notebook.MARK` are run as a whole.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import click
import log_format
import man_pages
import nccl_page
import notebook
from markup import NOTE, escape_markdown, table

from nccl_inspect.event import base as event
from nccl_inspect.event import types
from nccl_inspect.judging import engine

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
SCHEMAS = sorted((ROOT / "nccl_inspect" / "schema").glob("*.json"))
OUTPUT = re.compile(r"<!-- output: (.+?) -->\n.*?<!-- end -->", re.DOTALL)


def main() -> None:
    """Write what changed, or with ``--check`` name it and exit with status 1."""
    check = "--check" in sys.argv[1:]
    stale = [
        (path, text) for path, text in generate_files() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    known = {path for path, _ in generated_pages()}
    orphans = [path for path in (ROOT / "docs" / "log-format").rglob("*.md") if path not in known]
    for path in orphans:
        if not check:
            path.unlink()
        click.echo(f"{path.relative_to(ROOT)}: {'of no grammar file; run: make docs' if check else 'removed'}")
    for path, text in stale:
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        click.echo(f"{path.relative_to(ROOT)}: {'out of date; run: make docs' if check else 'written'}")
    sys.exit(1 if check and (stale or orphans) else 0)


def generate_files() -> Iterator[tuple[Path, str]]:
    """Yield every file with generated parts, and what it must hold."""
    yield from generated_pages()
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("tools/*.md"), *ROOT.glob("docs/**/*.md")]):
        if path.parent != REFERENCE and "log-format" not in path.parts:
            text = OUTPUT.sub(lambda found: output(found[1]), path.read_text(encoding="utf-8"))
            yield path, notebook.run(text) if notebook.is_notebook(text) else text


def generated_pages() -> Iterator[tuple[Path, str]]:
    """Yield the files that are generated as a whole."""
    pages = [(REFERENCE / f"{name}.md", list(page())) for name, page in PAGES.items()]
    for path, lines in (*pages, *log_format.pages(ROOT / "docs" / "log-format")):
        yield path, "\n".join((NOTE, "", *lines)).rstrip() + "\n"
    yield ROOT / "docs" / "upstream" / "reading_the_log.rst", "\n".join(nccl_page.page()).rstrip() + "\n"


def output(command: str) -> str:
    """Return a marked command with its real output, and its exit status when that is not 0."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={"PATH": path, "COLUMNS": "100", "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if "Traceback (most recent call last)" in done.stdout:
        sys.exit(f"{command}\n{done.stdout}")
    lines = [f"$ {command}", *(line.rstrip() for line in done.stdout.splitlines())]
    while not lines[-1]:
        lines.pop()
    if done.returncode:
        lines += ["$ echo $?", str(done.returncode)]
    return "\n".join((f"<!-- output: {command} -->", "```console", *lines, "```", "<!-- end -->"))


# --- commands and rules -----------------------------------------------------------------------------------------


def cli_page() -> Iterator[str]:
    """Yield the help of every command."""
    yield "# Commands"
    top = man_pages.top(terminal_width=98)
    yield from _help(top)
    for context in man_pages.contexts(top, terminal_width=98):
        yield from _help(context)


def _help(context: click.Context) -> Iterator[str]:
    yield f"\n## {context.command_path}\n"
    yield f"```text\n{context.get_help()}\n```"


def rules_page() -> Iterator[str]:
    """Yield every rule, by category."""
    yield "# Rules\n"
    yield "What is looked for. The severity is the usual one: a finding may have another, by its effect."
    rules = [entry.rule for entry in engine.list_rules()]
    for category, members in groupby(rules, key=lambda rule: rule.category):
        yield f"\n## {category}\n"
        rows = []
        for rule in members:
            file = f"{rule.name.replace('-', '_')}.md"
            has_page = (ROOT / "nccl_inspect" / "rules" / file).exists()
            name = f"[{rule.name}](../../nccl_inspect/rules/{file})" if has_page else rule.name
            causes = (cause.name for cause in engine.causes_of(rule.name))
            others = dict.fromkeys((*causes, *sorted(engine.superseding(rule.name))))
            rows.append((name, rule.severity, rule.title, ", ".join(others)))
        yield from table(("rule", "usual severity", "what is wrong", "causes, and more specific rules"), rows)


# --- events -----------------------------------------------------------------------------------------------------


def events_page() -> Iterator[str]:
    """Yield every event class with its fields."""
    yield "# Events\n"
    yield inspect.getdoc(types) or ""
    yield "\n`nccl_inspect.events(log)` gives one for each recognised line; which message becomes which is told by"
    yield "[the log format](../log-format/index.md)."
    notes = {**_field_notes(inspect.getsource(event)), **_field_notes(inspect.getsource(types))}
    common = {field.name for field in dataclasses.fields(event.Event)}
    for name, kind in types.KINDS.items():
        yield f"\n## {name}\n\n{escape_markdown(inspect.getdoc(kind) or '')}\n"
        bases = [notes.get(base.__name__, {}) for base in reversed(kind.__mro__)]
        meaning = {field: note for base in bases for field, note in base.items()}
        is_base = kind is event.Event
        own = [field for field in dataclasses.fields(kind) if is_base or field.name not in common]
        rows = [(field.name, str(field.type), meaning.get(field.name, "")) for field in own]
        yield from table(("field", "type", "meaning"), [*rows, *(_properties(kind, meaning) if is_base else ())])


def _field_notes(source: str) -> dict[str, dict[str, str]]:
    """Return the sentences under the fields of every class."""
    return {
        node.name: {field: note for pair in pairwise(node.body) for field, note in _field_note(*pair)}
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef)
    }


def _field_note(field: ast.stmt, note: ast.stmt) -> Iterator[tuple[str, str]]:
    match field, note:
        case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
            yield name, text


def _properties(kind: type, notes: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield properties: those that are functions, and those with an annotation and a note."""
    for name, member in vars(kind).items():
        if isinstance(member, property):
            returns = inspect.get_annotations(member.fget).get("return")  # type: ignore[arg-type]
            returns = returns or str(inspect.get_annotations(kind)[name]).removeprefix("ClassVar[").removesuffix("]")
            meaning = notes.get(name) or (inspect.getdoc(member.fget) or "").removeprefix("Return ")
            yield name, str(returns), meaning[:1].upper() + meaning[1:]


# --- JSON -------------------------------------------------------------------------------------------------------


def json_page() -> Iterator[str]:
    """Yield every key of the JSON documents, from their schemas."""
    yield "# JSON\n"
    yield "The JSON Schemas are part of the package. In Python `job.to_dict()` gives the first of these documents."
    for path in SCHEMAS:
        schema = json.loads(path.read_text(encoding="utf-8"))
        yield f"\n## {schema['title']}\n"
        yield f"{schema['description']} [JSON Schema](../../{path.relative_to(ROOT)})\n"
        rows = [*_keys(schema, schema, ""), *_keys(schema, _resolve(schema, schema.get("items", {})), "[].")]
        yield from table(("key", "type", "meaning"), rows)


def _keys(schema: dict[str, Any], part: dict[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    for name, entry in part.get("properties", {}).items():
        full = _resolve(schema, entry)
        yield f"`{path}{name}`", _type(schema, full), entry.get("description") or full.get("description", "")
        yield from _keys(schema, full, f"{path}{name}.")
        yield from _keys(schema, _resolve(schema, full.get("items", {})), f"{path}{name}[].")


def _resolve(schema: dict[str, Any], entry: Any) -> dict[str, Any]:
    if not isinstance(entry, dict):  # true or false are schemas, too
        return {}
    while "$ref" in entry:
        found: Any = schema
        for step in entry["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        entry = found
    resolved: dict[str, Any] = entry
    return resolved


def _type(schema: dict[str, Any], entry: Any) -> str:
    entry = _resolve(schema, entry)
    if "const" in entry or "enum" in entry:
        return " or ".join(json.dumps(value) for value in entry.get("enum", [entry.get("const")]))
    if several := entry.get("anyOf") or entry.get("oneOf"):
        return " or ".join(_type(schema, option) for option in several)
    kinds = entry.get("type", "any")
    words = [kinds] if isinstance(kinds, str) else list(kinds)
    if "items" in entry and "array" in words:
        words[words.index("array")] = f"list of {_type(schema, entry['items'])}"
    return " or ".join(words)


# --- the tables of a store --------------------------------------------------------------------------------------------


def fleet_tables_page() -> Iterator[str]:
    """Yield the columns of every table of nccl-inspect fleet."""
    yield "# Tables of a fleet store\n"
    yield "What `nccl-inspect fleet add` writes ([how-to](../howto/fleet.md))."
    described = tomllib.loads((ROOT / "nccl_inspect" / "extras" / "fleet" / "tables.toml").read_text(encoding="utf-8"))
    for name, about in described.items():
        yield f"\n## {name if name != 'shared' else 'All tables'}\n\n{about['about']}\n"
        yield from table(("column", "type", "meaning"), [(f"`{column}`", *rest) for column, *rest in about["columns"]])


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "cli": cli_page,
    "rules": rules_page,
    "events": events_page,
    "json": json_page,
    "fleet-tables": fleet_tables_page,
}

if __name__ == "__main__":
    main()
