"""Manual pages, from what ``--help`` says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import click

from nccl_inspect import __version__, cli
from nccl_inspect.cli import manual

PROGRAM = "nccl-inspect"


def pages() -> Iterator[tuple[str, str]]:
    """Yield the text of every page, by its name."""
    program = top()
    names = cli.cli.list_commands(program)
    yield PROGRAM, page(program, [f"{PROGRAM}-{name}" for name in names])
    for ctx in contexts(program):
        yield ctx.command_path.replace(" ", "-"), page(ctx, [PROGRAM])


def contexts(above: click.Context, **settings: Any) -> Iterator[click.Context]:
    """Yield the contexts of all commands below one, as if each were run."""
    group = above.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(above):
        command = group.get_command(above, name)
        assert command is not None
        ctx = command.context_class(command, above, name, **settings)
        yield ctx
        yield from contexts(ctx, **settings)


def top(terminal_width: int | None = None) -> click.Context:
    """Return the context of the program, as if it were run."""
    names = ["-h", "--help"]
    return cli.cli.context_class(cli.cli, info_name=PROGRAM, terminal_width=terminal_width, help_option_names=names)


def page(ctx: click.Context, related: list[str]) -> str:
    """Return a manual page in roff.

    Args:
        ctx: of the command.
        related: names of other pages.
    """
    return "\n".join(line for line in _lines(ctx, related) if line) + "\n"


def _lines(ctx: click.Context, related: list[str]) -> Iterator[str]:
    name = ctx.command_path.replace(" ", "-")
    told = manual.paragraphs(ctx.command)
    yield f'.TH "{name.upper()}" 1 "" "{PROGRAM} {__version__}" "User Commands"'
    yield from (".nh", ".ad l")  # names of options stay whole
    yield from (".SH NAME", f"{_text(name)} \\- {_text(ctx.command.get_short_help_str(limit=200).rstrip('.'))}")
    yield from (".SH SYNOPSIS", f".B {_text(ctx.command_path)}", _text(" ".join(ctx.command.collect_usage_pieces(ctx))))
    yield ".SH DESCRIPTION"
    for number, paragraph in enumerate(told):
        yield from (".PP" if number else "", _text(paragraph))
    purposes = [title for title, _ in manual.options(ctx)]
    for title, rows in manual.tables(ctx):
        if purposes and title == purposes[0]:
            yield ".SH OPTIONS"
        yield f".SS {title}" if title in purposes else f'.SH "{title.upper()}"'
        for head, words in rows:
            yield from (".TP", f".B {_text(head)}", _text(words))
    yield from _examples(manual.examples(ctx.command))
    yield from (".SH SEE ALSO", ", ".join(f"\\fB{_text(other)}\\fR(1)" for other in related))


def _examples(examples: Iterable[manual.Example]) -> Iterator[str]:
    for number, example in enumerate(examples):
        yield ".PP" if number else ".SH EXAMPLES"
        yield _text(f"{example.note[:1].upper()}{example.note[1:]}:") if example.note else ""
        yield from (".RS 4", ".nf", f"\\fB{_text(example.command)}\\fR", ".fi", ".RE")


def _text(text: str) -> str:
    """Return text in which roff sees no commands."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("…", "...")
    return f"\\&{escaped}" if escaped.startswith(".") else escaped
