"""Writes the generated parts of the documentation: ``python docs/generate.py``; ``--check`` only tells what drifted.

Whole pages come from the code (commands, rules, grammar, events, JSON schema). In all other Markdown files the outputs
between ``<!-- output: COMMAND -->`` and ``<!-- end -->`` come from running the command in the root of the repository.
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
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import click

from nccl_inspect import cli, event, event_types
from nccl_inspect.grammar import files, notation
from nccl_inspect.grammar.production import Production
from nccl_inspect.rules import engine

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
SCHEMA = ROOT / "nccl_inspect" / "schema" / "nccl-inspect-1.json"
NOTE = "<!-- Written by docs/generate.py; change the code that it describes. -->"
OUTPUT = re.compile(r"<!-- output: (.+?) -->\n.*?<!-- end -->", re.DOTALL)


def main() -> None:
    """Write what changed, or with ``--check`` name it and exit with status 1."""
    check = "--check" in sys.argv[1:]
    stale = [
        (path, text) for path, text in generated() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path, text in stale:
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        click.echo(f"{path.relative_to(ROOT)}: {'out of date; run: make docs' if check else 'written'}")
    sys.exit(1 if check and stale else 0)


def generated() -> Iterator[tuple[Path, str]]:
    """Every file with generated parts, and what it must hold."""
    for name, page in PAGES.items():
        yield REFERENCE / f"{name}.md", "\n".join((NOTE, "", *page())).rstrip() + "\n"
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]):
        if path.parent != REFERENCE:
            yield path, OUTPUT.sub(lambda found: output(found[1]), path.read_text(encoding="utf-8"))


def output(command: str) -> str:
    """A marked command with its real output, and its exit status when that is not 0."""
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
    lines = [f"$ {command}", *(line.rstrip() for line in done.stdout.splitlines())]
    while not lines[-1]:
        lines.pop()
    if done.returncode:
        lines += ["$ echo $?", str(done.returncode)]
    return "\n".join((f"<!-- output: {command} -->", "```console", *lines, "```", "<!-- end -->"))


# --- commands and rules -----------------------------------------------------------------------------------------


def cli_page() -> Iterator[str]:
    """The help of every command."""
    yield "# Commands"
    top = click.Context(cli.cli, info_name="nccl-inspect", terminal_width=100, help_option_names=["-h", "--help"])
    yield from _help(top)
    for name in cli.cli.list_commands(top):
        command = cli.cli.get_command(top, name)
        assert command is not None
        yield from _help(click.Context(command, top, name, terminal_width=100))


def _help(context: click.Context) -> Iterator[str]:
    yield f"\n## {context.command_path}\n"
    yield f"```text\n{context.get_help()}\n```"


def rules_page() -> Iterator[str]:
    """Every rule, by category."""
    yield "# Rules\n"
    yield "What is looked for. The severity is the usual one: a finding may have another, by its effect."
    rules = [entry.rule for entry in engine.registered()]
    for category, members in groupby(rules, key=lambda rule: rule.category):
        yield f"\n## {category}\n"
        rows = []
        for rule in members:
            file = f"{rule.name.replace('-', '_')}.md"
            has_page = (ROOT / "nccl_inspect" / "rules" / file).exists()
            name = f"[{rule.name}](../../nccl_inspect/rules/{file})" if has_page else rule.name
            others = dict.fromkeys((*rule.echo_of, *rule.because, *rule.specific))
            rows.append((name, rule.severity, rule.title, ", ".join(others)))
        yield from _table(("rule", "usual severity", "what is wrong", "causes, and more specific rules"), rows)


# --- grammar ----------------------------------------------------------------------------------------------------


def grammar_page() -> Iterator[str]:
    """Every message shape, by dialect and family."""
    texts = [(file.read_text(encoding="utf-8"), file.name) for file in files.shipped()]
    families = [(text, members) for text, name in texts if (members := files.read(text, name))]
    families.sort(key=lambda family: (family[1][0].dialect != "nccl", family[1][0].dialect, family[1][0].family))
    count = sum(len(members) for _, members in families)
    yield "# The log, message by message\n"
    yield f"The {count:,} message shapes that are recognised, with what each means: NCCL and"
    yield "its plugins have no other documentation of what they print. A shape is what follows `NCCL INFO ` or"
    yield "`NCCL WARN `. Versions are the releases that print it, subsystems those of `NCCL_DEBUG_SUBSYS` of which any"
    yield "one shows it; it becomes the event named last.\n"
    for dialect, group in groupby(families, key=lambda family: family[1][0].dialect):
        names = [members[0].family for _, members in group]
        yield f"* {dialect}: " + ", ".join(f"[{name}](#{dialect}-{name})" for name in names)
    yield ""
    yield f"## Notation\n\n```text\n{inspect.getdoc(notation)}\n```"
    for dialect, group in groupby(families, key=lambda family: family[1][0].dialect):
        yield f"\n## {dialect}"
        for text, members in group:
            yield f"\n### {dialect}: {members[0].family}\n"
            yield _escaped(_introduction(text))
            for production in members:
                yield from _production(production)


def _introduction(text: str) -> str:
    """The comment at the head of a grammar file."""
    lines = text.split("\n")
    end = next(index for index, line in enumerate(lines) if not line.startswith("#"))
    return "\n".join(line[1:].strip() for line in lines[:end])


def _production(production: Production) -> Iterator[str]:
    names = " or ".join(f"`{name}`" for name in production.subsys.split("|"))
    shown = "always shown" if production.subsys == "ALWAYS" else f"shown with {names}"
    event = f"[{production.event}](events.md#{production.event.lower()})"
    yield f"\n**{production.name}** · {_versions(production.versions)} · {shown} · {event}\n"
    yield f"    {production.line}"
    for name, line in production.details.fragments.items():
        if f":*{name}}}" in production.line:
            yield f"        {name} = {line}"
    yield f"\n{_escaped(production.says)}"


def _versions(versions: str) -> str:
    first, dots, last = versions.partition("..")
    if not versions:
        return "all versions"
    if not dots:
        return first
    return f"{first} to {last}" if first and last else f"{first} and later" if first else f"until {last}"


# --- events -----------------------------------------------------------------------------------------------------


def events_page() -> Iterator[str]:
    """Every event class with its fields."""
    yield "# Events\n"
    yield inspect.getdoc(event_types) or ""
    yield "\n`nccl_inspect.events(log)` gives one for each recognised line; which message becomes which is told by"
    yield "[the grammar](grammar.md)."
    notes = {**_field_notes(inspect.getsource(event)), **_field_notes(inspect.getsource(event_types))}
    common = {field.name for field in dataclasses.fields(event.Event)}
    for name, kind in event_types.KINDS.items():
        yield f"\n## {name}\n\n{_escaped(inspect.getdoc(kind) or '')}\n"
        bases = [notes.get(base.__name__, {}) for base in reversed(kind.__mro__)]
        meaning = {field: note for base in bases for field, note in base.items()}
        is_base = kind is event.Event
        own = [field for field in dataclasses.fields(kind) if is_base or field.name not in common]
        rows = [(field.name, str(field.type), meaning.get(field.name, "")) for field in own]
        yield from _table(("field", "type", "meaning"), [*rows, *(_properties(kind) if is_base else ())])


def _field_notes(source: str) -> dict[str, dict[str, str]]:
    """The sentences under the fields of every class."""
    return {
        node.name: {field: note for pair in pairwise(node.body) for field, note in _field_note(*pair)}
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef)
    }


def _field_note(field: ast.stmt, note: ast.stmt) -> Iterator[tuple[str, str]]:
    match field, note:
        case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
            yield name, text


def _properties(kind: type) -> Iterator[tuple[str, str, str]]:
    for name, member in vars(kind).items():
        if isinstance(member, property):
            returns = inspect.get_annotations(member.fget)["return"]  # type: ignore[arg-type]
            yield name, str(returns), inspect.getdoc(member.fget) or ""


# --- JSON -------------------------------------------------------------------------------------------------------


def json_page() -> Iterator[str]:
    """Every key of the JSON document, from its schema."""
    if not SCHEMA.exists():
        yield "# JSON: nccl-inspect/1\n\nThe schema is not written yet; `job.to_dict()` shows the keys."
        return
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    yield f"# JSON: {schema.get('title', 'nccl-inspect/1')}\n"
    yield schema.get("description", "")
    yield f"\nThe [JSON Schema](../../{SCHEMA.relative_to(ROOT)}) is part of the package."
    yield "`nccl-inspect summarize --format json` writes the document, `job.to_dict()` gives it in Python.\n"
    yield from _table(("key", "type", "meaning"), list(_keys(schema, schema, "")))


def _keys(schema: dict[str, Any], part: dict[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    for name, entry in part.get("properties", {}).items():
        full = _resolved(schema, entry)
        yield f"`{path}{name}`", _type(schema, full), entry.get("description") or full.get("description", "")
        yield from _keys(schema, full, f"{path}{name}.")
        yield from _keys(schema, _resolved(schema, full.get("items", {})), f"{path}{name}[].")


def _resolved(schema: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in entry:
        found: Any = schema
        for step in entry["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        entry = found
    return entry


def _type(schema: dict[str, Any], entry: dict[str, Any]) -> str:
    entry = _resolved(schema, entry)
    if "const" in entry or "enum" in entry:
        return " or ".join(json.dumps(value) for value in entry.get("enum", [entry.get("const")]))
    if several := entry.get("anyOf") or entry.get("oneOf"):
        return " or ".join(_type(schema, option) for option in several)
    kinds = entry.get("type", "any")
    words = [kinds] if isinstance(kinds, str) else list(kinds)
    if "items" in entry and "array" in words:
        words[words.index("array")] = f"list of {_type(schema, entry['items'])}"
    return " or ".join(words)


# --- Markdown ---------------------------------------------------------------------------------------------------


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    if rows:
        yield f"| {' | '.join(head)} |\n|{'---|' * len(head)}"
        yield from (f"| {' | '.join(map(_cell, row))} |" for row in rows)


def _cell(text: str) -> str:
    return _escaped(" ".join(text.replace("``", "`").split())).replace("|", "\\|")


def _escaped(text: str) -> str:
    """Text in which Markdown sees no markup, except back quotes: what stands in them is left alone."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"[<*]", r"\\\g<0>", part) for part in parts[::2]]
    return "`".join(parts)


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "cli": cli_page,
    "rules": rules_page,
    "grammar": grammar_page,
    "events": events_page,
    "json": json_page,
}

if __name__ == "__main__":
    main()
