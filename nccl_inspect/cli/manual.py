"""What ``--help`` and the manual pages say: options by purpose, what the exit statuses mean, examples that fit.

A command states what is its own: options, and a docstring with ``Examples:`` and, where its statuses mean something
else than those of most commands, ``Exit status: 0 …; 1 …``. The rest is here, once for all.
"""

from __future__ import annotations

import inspect
import re
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from nccl_inspect.util.wording import capitalize

Row = tuple[str, str]


_TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
GROUPS, COMMANDS = (
    [(title, tuple(names.split())) for title, names in _TEXTS[kind].items()] for kind in ("options", "commands")
)
"""Options and commands by purpose, in the order of the help."""
LOG: str = _TEXTS["log"]
FOUND = 1
_INPUTS = ("logs", "log", "before")
_STATUS = "Exit status:"
_EXAMPLES = "Examples:"
_OPTION = re.compile(r"--[a-z][a-z-]*")
_HYPHEN = "\u2011"  # stands for a hyphen at which no line may end


class Example(NamedTuple):
    """A command to paste, and what it is for (may be empty)."""

    command: str
    note: str


def page(ctx: click.Context) -> str:
    """Return the help of the command of a context, as wide as its formatter."""
    formatter, command = ctx.make_formatter(), ctx.command
    command.format_usage(ctx, formatter)
    for paragraph in paragraphs(command):
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(_unbroken(paragraph))
    for title, rows in tables(ctx):
        with formatter.section(title):
            formatter.write_dl([(_unbroken(name), _unbroken(words)) for name, words in rows])
    if own_examples := examples(command):
        with formatter.section(_EXAMPLES.removesuffix(":")):
            pad = " " * formatter.current_indent
            lines = fit_examples(own_examples, formatter.width - formatter.current_indent)
            formatter.write("".join(f"{pad}{line}\n" for line in lines))
    return formatter.getvalue().rstrip("\n").replace(_HYPHEN, "-")


def tables(ctx: click.Context) -> Iterator[tuple[str, list[Row]]]:
    """Yield the parts of a page that have a title and rows."""
    group = ctx.command
    if isinstance(group, click.Group):
        members = [(name, group.get_command(ctx, name)) for name in group.list_commands(ctx)]
        rows = {name: (name, command.get_short_help_str(limit=200)) for name, command in members if command}
        yield from _sort_by_purpose(rows, COMMANDS)
    if any(parameter.name == "logs" for parameter in ctx.command.params):
        yield "Arguments", [("LOG", LOG)]  # other arguments are described in the text
    yield from options(ctx)
    if own_statuses := statuses(ctx.command):
        yield "Exit status", own_statuses


def _sort_by_purpose(
    rows: dict[str, Row], groups: Sequence[tuple[str, tuple[str, ...]]]
) -> Iterator[tuple[str, list[Row]]]:
    grouped = {name for _, names in groups for name in names}
    for title, names in groups:
        if own := [rows[name] for name in names or rows.keys() if name in rows and (names or name not in grouped)]:
            yield title, own


def options(ctx: click.Context) -> Iterator[tuple[str, list[Row]]]:
    """Yield the options of a command, by purpose."""
    own = [option for option in ctx.command.get_params(ctx) if isinstance(option, click.Option)]
    records = {_long_name(option): record for option in own if (record := option.get_help_record(ctx))}
    return _sort_by_purpose(records, GROUPS)


def statuses(command: click.Command) -> list[Row]:
    """Return what the exit statuses of a command mean."""
    is_gate = any(_long_name(parameter) == "fail-on" for parameter in command.params)
    reads = any(parameter.name in _INPUTS for parameter in command.params)
    usual = (0, 2, *((1,) if is_gate else ()), *((3, 130) if reads else ()))
    meanings: dict[int, str] = {status: _TEXTS["statuses"][f"{status}"] for status in usual}
    meanings |= {3: _TEXTS["statuses"]["gate"]} if is_gate else {}
    sentence = next((part for part in _full_text(command).split("\n\n") if part.startswith(_STATUS)), "")
    parts = re.split(r"(?:^|; )(\d+) ", " ".join(sentence.split()).removeprefix(f"{_STATUS} "))
    own = zip(map(int, parts[1::2]), parts[2::2], strict=True)
    meanings |= {status: f"{capitalize(words.rstrip(';,. '))}." for status, words in own}
    return [(str(status), meanings[status]) for status in sorted(meanings)]


def _full_text(command: click.Command) -> str:
    return "\n\n".join(map(inspect.cleandoc, filter(None, (command.help, command.epilog))))


def paragraphs(command: click.Command) -> list[str]:
    """Return what a command does, without its exit statuses."""
    text = _full_text(command).split("\n\n")
    return [" ".join(paragraph.split()) for paragraph in text if not paragraph.startswith((_STATUS, _EXAMPLES))]


def examples(command: click.Command) -> list[Example]:
    """Return the examples of a command."""
    _, _, text = _full_text(command).partition(f"{_EXAMPLES}\n")
    found = []
    for line in filter(str.strip, text.partition("\n\n")[0].splitlines()):
        command_line, *note = re.split(r" {2,}", line.strip(), maxsplit=1)
        about = note[0] if note else ""
        found.append(Example(command_line, about[1:-1] if about.startswith("(") else about))
    return found


def fit_examples(rows: Sequence[Example], width: int) -> Iterator[str]:
    """Yield examples: notes beside the commands where a width has room for all, else above them; commands are whole."""
    column = max(len(example.command) for example in rows) + 3
    if all(column + len(example.note) <= width for example in rows):
        yield from (f"{example.command:{column}}{example.note}".rstrip() for example in rows)
        return
    for example in rows:
        yield from textwrap.wrap(example.note, width, initial_indent="# ", subsequent_indent="# ")
        yield example.command


def _long_name(parameter: click.Parameter) -> str:
    return max((*parameter.opts, ""), key=len).lstrip("-")


def _unbroken(text: str) -> str:
    return _OPTION.sub(lambda match: match[0].replace("-", _HYPHEN), text)
