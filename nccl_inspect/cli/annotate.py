"""``nccl-inspect annotate``: the log with a note beside each NCCL line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import click

from nccl_inspect.cli import print_stderr, shared
from nccl_inspect.errors import NoInputError
from nccl_inspect.grammar import engine
from nccl_inspect.grammar.production import Production
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines import prefix
from nccl_inspect.ingest.lines.decoration import PASTE
from nccl_inspect.ingest.sources import blocks
from nccl_inspect.pipeline.reading import nothing_found
from nccl_inspect.report import Style
from nccl_inspect.report.words import paint
from nccl_inspect.scanning import meaning
from nccl_inspect.scanning.excerpts import Excerpt
from nccl_inspect.util.secrets import mask_secrets, may_hide
from nccl_inspect.util.text import decode, escape_controls, escape_controls_in_lines

_MARK = b" NCCL "
_MAX_KNOWN = 10_000  # messages that are remembered


@click.command(short_help="Print the log with a note below each kind of NCCL line.")
@shared.inputs
@click.option("--only-nccl", is_flag=True, help="Omit lines unrelated to NCCL.")
@shared.output_options
def command(logs: tuple[str, ...], only_nccl: bool, out: shared.Output) -> None:
    """Print the log and explain the lines of NCCL, its plugins, PyTorch or a launcher in short notes below them.

    Each kind of line is explained once, where it first appears.

    Examples:
      nccl-inspect annotate job.log | less -R
      nccl-inspect annotate job.log --only-nccl -o job.annotated
    """
    out.write_lines(_annotate_logs(shared.inputs_or_stdin(logs), _Margin(engine.load_grammar(), only_nccl, out.style)))


def _annotate_logs(logs: list[str], margin: _Margin) -> Iterator[str]:
    problems: list[NoInputError] = []
    lines: dict[str, int] = {}
    for source in blocks.find(logs):
        lines[source.name] = 0
        for piece in blocks.records_of(source, as_it_is=True):
            if isinstance(piece, NoInputError):
                problems.append(piece)
                continue
            lines[source.name] += len(piece.lines)
            if noted := list(margin.add_notes(piece.lines)):
                yield "\n".join(noted)
    if not margin.has_nccl:
        raise nothing_found(lines, list(map(str, problems)))
    for problem in problems:
        print_stderr(str(problem))


class _Margin:
    def __init__(self, grammar: engine.Grammar, only_nccl: bool, style: Style) -> None:
        self._grammar = grammar
        self._only_nccl = only_nccl
        self._style = style
        self._parse = lru_cache(_MAX_KNOWN)(grammar.parse)
        self._noted: set[Production] = set()
        self.has_nccl = False  # whether there was a line of NCCL, or one related to it

    def add_notes(self, lines: Sequence[bytes]) -> Iterator[str]:
        block = b"\n".join(lines)
        clean = envelopes.clean_lines(lines, block)
        others = b"\n".join([line for line in clean if _MARK not in line])
        needles = [sign for candidate in self._grammar.find_foreign(others) for sign in candidate.signs]
        hides = may_hide(decode(block))
        pasted: dict[int, Production] = {}
        if not (self.has_nccl or len(block) > PASTE or any(map(prefix.split, clean))):
            for reading in Excerpt(self._grammar).readings(clean):
                for _, text in reading.messages:
                    if text.parsed:
                        pasted[reading.place + reading.pieces - 1] = text.parsed.production
        printable = [] if hides else escape_controls_in_lines(decode(block)).split("\n")
        if len(printable) != len(lines):  # one has an end within, or may hide something
            printable = [escape_controls(mask_secrets(decode(line))) for line in lines]
        for place, (plain, shown) in enumerate(zip(clean, printable, strict=True)):
            production = pasted.get(place)
            if _MARK in plain or plain.startswith(b"NCCL ") or any(needle in plain for needle in needles):
                production = self._production(plain, hides and may_hide(decode(plain)))
            self.has_nccl = self.has_nccl or production is not None or prefix.split(plain) is not None
            if production or not self._only_nccl:
                yield shown
            if production and production.says and production not in self._noted:
                self._noted.add(production)
                yield paint(f"    ^ {production.says}", "dim", self._style)

    def _production(self, line: bytes, hides: bool) -> Production | None:
        parts = prefix.split(line)
        is_plain = parts and not (hides or line.startswith(b"NCCL ") or envelopes.is_whole(line))
        if parts and is_plain and (parsed := self._parse(parts[1].partition(b" ")[2])):
            return parsed.production
        sense = meaning.explain_line(mask_secrets(decode(line)), self._grammar)
        return sense.production if sense else None
