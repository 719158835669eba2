"""``nccl-inspect explain``: a rule's page, or what log lines mean."""

from __future__ import annotations

import sys

import click

from nccl_inspect import explain as explaining
from nccl_inspect.cli import shared
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.grammar import engine
from nccl_inspect.report.words import PAGE_WIDTH, block, fit_page, page_for_terminal, paint
from nccl_inspect.scanning import meaning
from nccl_inspect.util.atomic_files import STDOUT
from nccl_inspect.util.secrets import mask_secrets
from nccl_inspect.util.text import decode, escape_controls

_MAX_PIPED = 1 << 20  # bytes: more than any line has
_MAX_LINES = 100


@click.command(short_help="Explain a rule or lines of a log.")
@click.argument("what", metavar="[RULE|LINE]", nargs=-1, shell_complete=shared.complete_rules)
@shared.output_options
def command(what: tuple[str, ...], out: shared.Output) -> None:
    """Print the page of a rule, or explain a log line field by field.

    Give a line with its prefix or only the message; quote it so that the shell does not change it. Several lines, each
    quoted or piped in, are explained one by one. For part of a line, the closest known line is explained.

    Examples:
      nccl-inspect explain socket-instead-of-efa
      nccl-inspect explain 'vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM'
      nccl-inspect explain 'Connected all rings, use ring PXN 0 GDR 1'
      nccl-inspect explain 'NET/IB : No device found.' 'Using network Socket'
      grep WARN job.log | nccl-inspect explain
    """
    if what in ((), ("-",)):
        if sys.stdin is None or sys.stdin.isatty():
            raise NcclInspectError("nothing to explain", f"name a rule or give a line; {explaining.LIST_RULES}")
        nonempty = [line for line in decode(sys.stdin.buffer.read(_MAX_PIPED)).splitlines() if line.strip()]
        if not nonempty:
            raise NcclInspectError("standard input is empty", "name a rule, or pipe in a line")
        texts = _join_wrapped(nonempty)
        if len(texts) > _MAX_LINES:
            raise NcclInspectError(
                f"standard input holds more than {_MAX_LINES} lines", "use 'nccl-inspect annotate' for a whole log"
            )
    else:  # one line given as separate words, or several lines and rules
        lines = [line for text in what for line in text.splitlines() if line.strip()]
        are_words = all(len(text.split()) == 1 for text in what) and explaining.rule_page(what[0]) is None
        texts = [" ".join(what)] if are_words or len(lines) < 2 else _join_wrapped(lines)
    texts = [mask_secrets(text) for text in texts]
    if len(texts) == 1:
        out.write(_explain_text(texts[0], out))
        return
    explained, problems = [], 0
    for text in texts:
        try:
            below = _explain_text(text, out)
        except NcclInspectError as error:
            problems += 1
            below = "\n".join(block("unknown", str(error), out.style, indent=0, hang=12)) + "\n"
        explained.append(f"{paint(escape_controls(f'> {text.strip()}'), 'bold', out.style)}\n{below}")
    if problems == len(texts):
        raise NcclInspectError(f"none of the {len(texts)} lines is known", explaining.LIST_RULES)
    out.write("\n".join(explained))


def _join_wrapped(lines: list[str]) -> list[str]:
    line = meaning.rejoin(lines, engine.load_grammar()) if len(lines) > 1 else None
    return [line] if line else list(dict.fromkeys(lines))


def _explain_text(text: str, out: shared.Output) -> str:
    page, style = explaining.rule_page(text), out.style
    if page is not None:
        width = shared.output_width(out.target, PAGE_WIDTH)
        is_shown = out.target in STDOUT
        return page_for_terminal(page, style.with_fields(width=width)) if is_shown else fit_page(page, width)
    explanation = explaining.line(text)
    lines = [line for label, words in explanation.parts for line in block(label, words, style, indent=0, hang=12)]
    if explanation.fields:
        width = max(len(name) for name, _, _ in explanation.fields) + 2
        lines.append("fields")
        for name, value, sense in explanation.fields:
            lines.extend(block(name, f"{value}   {sense}".rstrip(), style, indent=2, hang=width))
    return "\n".join(lines) + "\n"
