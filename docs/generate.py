"""Writes the generated parts of the documentation: ``python docs/generate.py``; with ``--check`` it only tells what drifted.

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
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from nccl_inspect import cli, event_types
from nccl_inspect.grammar import files, notation
from nccl_inspect.grammar.production import Production
from nccl_inspect.rules import engine

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
SCHEMA = ROOT / "nccl_inspect" / "schema" / "nccl-inspect-1.json"
NOTE = "<!-- Written by docs/generate.py; edit the code that it describes. -->\n"
OUTPUT = re.compile(r"<!-- output: (.+?) -->\n.*?<!-- end -->", re.DOTALL)


def main() -> None:
    """Write what changed, or with ``--check`` name it and exit with status 1."""
    check = "--check" in sys.argv[1:]
    changed = [path for path, text in generated() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path, text in () if check else generated():
        if path in changed:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in changed:
        click.echo(f"{path.relative_to(ROOT)}: {'out of date; run: make docs' if check else 'written'}")
    sys.exit(1 if check and changed else 0)


def generated() -> Iterator[tuple[Path, str]]:
    """Every file with generated parts, and what it must hold."""
    for name, page in PAGES.items():
        yield REFERENCE / f"{name}.md", NOTE + "\n" + "\n".join(page()).rstrip() + "\n"
    if SCHEMA.exists():
        yield REFERENCE / "json.md", NOTE + "\n" + "\n".join(json_page()).rstrip() + "\n"
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]):
        if path.parent != REFERENCE:
            yield path, OUTPUT.sub(lambda found: output(found[1]), path.read_text(encoding="utf-8"))


def output(command: str) -> str:
    """A marked command with its real output; a line end after ``| head`` and the like is the shell's."""
    env = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    shown = "\n".join(line.rstrip() for line in (done.stdout + done.stderr).rstrip("\n").split("\n"))
    status = f"\n$ echo $?\n{done.returncode}" if done.returncode else ""
    return f"<!-- output: {command} -->\n```console\n$ {command}\n{shown}{status}\n```\n<!-- end -->"


def cli_page() -> Iterator[str]:
    """The help of every command."""
    yield "# Commands"
    top = click.Context(cli.cli, info_name="nccl-inspect", terminal_width=100)
    yield from _help("nccl-inspect", cli.cli, top)
    for name in cli.cli.list_commands(top):
        command = cli.cli.get_command(top, name)
        assert command is not None
        yield from _help(f"nccl-inspect {name}", command, click.Context(command, top, name, terminal_width=100))


def _help(title: str, command: click.Command, context: click.Context) -> Iterator[str]:
    context.help_option_names = ["-h", "--help"]
    yield f"\n## {title}\n\n```text\n{command.get_help(context)}\n```"


def rules_page() -> Iterator[str]:
    """Every rule, by category."""
    yield "# Rules\n"
    yield "What is looked for. The severity is the usual one: a finding may have another, by its effect."
    rules = [entry.rule for entry in engine.registered()]
    for category, members in groupby(rules, key=lambda rule: rule.category):
        yield f"\n## {category.capitalize()}\n\n| rule | severity | what is wrong | told under, or silent beside |\n|---|---|---|---|"
        for rule in members:
            file = f"{rule.name.replace('-', '_')}.md"
            exists = (ROOT / "nccl_inspect" / "rules" / file).exists()
            name = f"[{rule.name}](../../nccl_inspect/rules/{file})" if exists else rule.name
            others = ", ".join(dict.fromkeys((*rule.echo_of, *rule.because, *rule.specific)))
            yield f"| {name} | {rule.severity} | {_cell(rule.title)} | {others} |"


def grammar_page() -> Iterator[str]:
    """Every message shape, by dialect and family."""
    sources = [(file.read_text(encoding="utf-8"), file.name) for file in files.shipped()]
    families = [(text, members) for text, name in sources if (members := files.read(text, name))]
    shapes = sum(len(members) for _, members in families)
    yield "# The log, message by message\n"
    yield f"The {shapes} message shapes that are recognised, with what each means: the log of NCCL and of its plugins has no"
    yield "other documentation. A shape is what follows `NCCL INFO ` or `NCCL WARN `. Versions are the releases that print it,"
    yield "the subsystems those of `NCCL_DEBUG_SUBSYS` of which any one shows it.\n"
    yield "## Notation\n"
    yield f"```text\n{inspect.getdoc(notation)}\n```"
    for dialect, group in groupby(families, key=lambda entry: entry[1][0].dialect):
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
    always = production.subsys == "ALWAYS"
    shown = (
        "always shown" if always else "shown with " + " or ".join(f"`{name}`" for name in production.subsys.split("|"))
    )
    event = f"[{production.event}](events.md#{production.event.lower()})"
    yield f"\n**{production.name}** · {_versions(production.versions)} · {shown} · {event}\n"
    yield f"    {production.line}"
    yield from (
        f"    {' ' * 4}{name} = {line}"
        for name, line in production.fragments.items()
        if f"*{name}}}" in production.line
    )
    yield f"\n{_escaped(production.says)}"


def _versions(versions: str) -> str:
    first, dots, last = versions.partition("..")
    if not versions:
        return "all versions"
    if not dots:
        return first
    return f"{first} to {last}" if first and last else f"{first} and later" if first else f"until {last}"


def events_page() -> Iterator[str]:
    """Every event class with its fields."""
    yield "# Events\n"
    yield inspect.getdoc(event_types) or ""
    yield "\n`nccl_inspect.events(log)` gives one for each recognised line; which message becomes which event stands in"
    yield "[the grammar](grammar.md)."
    notes = _field_notes(event_types)
    common = {field.name for field in dataclasses.fields(event_types.Event)}
    for name, kind in event_types.KINDS.items():
        yield f"\n## {name}\n\n{inspect.getdoc(kind)}\n"
        own = [field for field in dataclasses.fields(kind) if kind is event_types.Event or field.name not in common]
        inherited = {key: note for base in reversed(kind.__mro__) for key, note in notes.get(base.__name__, {}).items()}
        rows = [(field.name, str(field.type), inherited.get(field.name, "")) for field in own]
        if kind is event_types.Event:
            rows += _properties(kind)
        yield from _table(("field", "type", "meaning"), rows)


def _field_notes(module: Any) -> dict[str, dict[str, str]]:
    """The sentences under the fields of every class of a module."""
    notes: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef):
            pairs = zip(node.body, node.body[1:], strict=False)
            notes[node.name] = {
                field.target.id: after.value.value
                for field, after in pairs
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                if isinstance(after.value.value, str)
            }
    return notes


def _properties(kind: type) -> list[tuple[str, str, str]]:
    found = [(name, member.fget) for name, member in vars(kind).items() if isinstance(member, property) and member.fget]
    return [
        (name, str(inspect.get_annotations(get).get("return", "")), inspect.getdoc(get) or "") for name, get in found
    ]


def json_page() -> Iterator[str]:
    """Every key of the JSON document, from its schema."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    yield f"# JSON: `{schema.get('title', 'nccl-inspect/1')}`\n"
    yield schema.get("description", "")
    yield f"\nThe [JSON Schema](../../{SCHEMA.relative_to(ROOT)}) is part of the package. `nccl-inspect summarize --format json` writes"
    yield "the document, `job.to_dict()` gives it in Python.\n"
    yield from _table(("key", "type", "meaning"), list(_keys(schema, schema, "")))


def _keys(schema: dict[str, Any], part: dict[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    for name, entry in part.get("properties", {}).items():
        full = _resolved(schema, entry)
        yield f"`{path}{name}`", _type(schema, full), entry.get("description", full.get("description", ""))
        yield from _keys(schema, full, f"{path}{name}.")
        if "items" in full:
            yield from _keys(schema, _resolved(schema, full["items"]), f"{path}{name}[].")


def _resolved(schema: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in entry:
        found: Any = schema
        for step in entry["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        entry = found
    return entry


def _type(schema: dict[str, Any], entry: dict[str, Any]) -> str:
    entry = _resolved(schema, entry)
    if "const" in entry:
        return f"`{json.dumps(entry['const'])}`"
    if "enum" in entry:
        return " or ".join(f"`{json.dumps(value)}`" for value in entry["enum"])
    if several := entry.get("anyOf", entry.get("oneOf")):
        return " or ".join(_type(schema, option) for option in several)
    kinds = entry.get("type", "any")
    words = [kinds] if isinstance(kinds, str) else kinds
    return " or ".join(
        f"list of {_type(schema, entry['items'])}" if w == "array" and "items" in entry else w for w in words
    )


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    if rows:
        yield f"| {' | '.join(head)} |\n|{'---|' * len(head)}"
        yield from (f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows)


def _cell(text: str) -> str:
    return _escaped(" ".join(text.replace("``", "`").split())).replace("|", "\\|")


def _escaped(text: str) -> str:
    """Text whose angle brackets and stars are not taken for Markdown; what stands in back quotes is left alone."""
    parts = text.split("`")
    plain = [
        part.replace("<", "&lt;").replace("*", "\\*") if index % 2 == 0 else part for index, part in enumerate(parts)
    ]
    return "`".join(plain)


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "cli": cli_page,
    "rules": rules_page,
    "grammar": grammar_page,
    "events": events_page,
}

if __name__ == "__main__":
    main()
