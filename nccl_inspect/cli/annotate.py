"""``nccl-inspect annotate``: the log with a note beside each NCCL line."""

from __future__ import annotations

from collections.abc import Iterator

import click

from nccl_inspect import reading
from nccl_inspect.cli import say, shared
from nccl_inspect.errors import NoInputError
from nccl_inspect.grammar import engine, meaning
from nccl_inspect.grammar.engine import Grammar
from nccl_inspect.grammar.meaning import Meaning
from nccl_inspect.ingest import envelopes, prefix, sources
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
@click.option("--only-nccl", is_flag=True, help="Leave out lines that tell nothing of NCCL.")
@shared.output
def command(logs: tuple[str, ...], only_nccl: bool, out: shared.Output) -> None:
    """The log with a short note below each line of NCCL, of its plugins, of PyTorch or a launcher: what it means."""
    lines = _annotated(shared.given(logs), only_nccl)
    out.write_lines(paint(text, "dim", out.style) if note else text for text, note in lines)


def _annotated(logs: list[str], only_nccl: bool) -> Iterator[tuple[str, bool]]:
    """Lines of the log, each followed by its note; what could not be read is said at the end.

    Raises:
        NoInputError: nothing could be read, or no line is NCCL's.
    """
    grammar = engine.shipped()
    problems: list[NoInputError] = []
    lines: dict[str, int] = {}
    has_nccl = False
    for source in sources.find(logs):
        lines[source.name] = 0
        for piece in sources.pieces_of(source):
            if isinstance(piece, NoInputError):
                problems.append(piece)
                continue
            lines[source.name] += len(piece.lines)
            block = b"\n".join(piece.lines)
            needles = [b" NCCL ", *(one.needle for one in grammar.foreign_in(block))]
            for line, plain in zip(piece.lines, envelopes.cleaned(piece.lines, block), strict=True):
                found = _meaning(plain, needles, grammar)
                has_nccl = has_nccl or found is not None or prefix.split(plain) is not None
                yield from _with_note(line, found, only_nccl)
    if not has_nccl:
        raise reading.nothing_found(lines, list(map(str, problems)))
    for problem in problems:
        say(str(problem))


def _meaning(line: bytes, needles: list[bytes], grammar: Grammar) -> Meaning | None:
    """What a line means, if it can be worth a note."""
    if line.startswith(b"NCCL ") or any(needle in line for needle in needles):
        return meaning.of_line(masked(decode(line)), grammar)
    return None


def _with_note(line: bytes, found: Meaning | None, only_nccl: bool) -> Iterator[tuple[str, bool]]:
    if found or not only_nccl:
        yield printable(masked(decode(line))), False
    if found and found.production.says:
        yield f"    ^ {found.production.says}", True
