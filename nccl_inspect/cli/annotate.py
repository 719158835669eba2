"""``nccl-inspect annotate``: the log with a note beside each NCCL line."""

from __future__ import annotations

from collections.abc import Iterator

import click

from nccl_inspect.cli import say, shared
from nccl_inspect.errors import NoInputError
from nccl_inspect.grammar import engine, meaning
from nccl_inspect.grammar.engine import Grammar
from nccl_inspect.ingest import sources
from nccl_inspect.masking import masked
from nccl_inspect.report.words import paint
from nccl_inspect.text import decode, printable

_EXAMPLES = """
\b
Examples:
  nccl-inspect annotate job.log | less -R
  nccl-inspect annotate job.log --only-nccl -o job.annotated
"""


@click.command(epilog=_EXAMPLES, short_help="The log with a note below each NCCL line.")
@shared.inputs
@click.option("--only-nccl", is_flag=True, help="Leave out lines that are not NCCL's.")
@shared.output
def command(logs: tuple[str, ...], only_nccl: bool, output: str, no_color: bool) -> None:
    """The log with a short note below each NCCL line: what it means."""
    style = shared.style(no_color, output)
    lines = (paint(text, "dim", style) if note else text for text, note in _annotated(shared.given(logs), only_nccl))
    shared.write_lines(lines, output)


def _annotated(logs: list[str], only_nccl: bool) -> Iterator[tuple[str, bool]]:
    """Lines of the log, each followed by its note; what could not be read is said at the end.

    Raises:
        NoInputError: nothing could be read.
    """
    grammar = engine.shipped()
    problems: list[NoInputError] = []
    read = False
    for source in sources.find(logs):
        for block in sources.pieces_of(source):
            if isinstance(block, NoInputError):
                problems.append(block)
                continue
            read = True
            for line in block:
                yield from _with_note(line, grammar, only_nccl)
    if problems and not read:
        raise problems[0]
    for problem in problems:
        say(str(problem))


def _with_note(line: bytes, grammar: Grammar, only_nccl: bool) -> Iterator[tuple[str, bool]]:
    text = masked(decode(line))
    is_nccl = b" NCCL " in line or line.startswith(b"NCCL ")
    found = meaning.of_line(text, grammar) if is_nccl else None
    if found or not only_nccl:
        yield printable(text), False
    if found and found.production.says:
        yield f"    ^ {found.production.says}", True
