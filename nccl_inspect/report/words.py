"""Words, colors and markup that reports share."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nccl_inspect.judging.remedies import COMMENT, is_sentence
from nccl_inspect.report import Style
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.text import cut, escape_controls
from nccl_inspect.util.wording import count, ranges

if TYPE_CHECKING:
    from jinja2 import Environment

_COLORS = {"error": "31", "warning": "33", "info": "36", "ok": "32", "bold": "1", "dim": "2"}
PAGE_WIDTH = 120  # width of the Markdown pages
_CODE = compile_later(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_LIST_ITEM = re.compile(r" *(?:[-*]|\d+\.) +")
_PARAGRAPH = compile_later(rf"^(?! *[|#\n]).+(?:\n(?!{_LIST_ITEM.pattern}| *[|#\n]).+)*", re.MULTILINE)
"""Of a page without code: some lines of text, or an item of a list; not a heading and not a table."""
EXAMPLE = compile_later(r"^```log (raises|silent|undecided)(.*)$", re.MULTILINE)
"""The start of a log on a rule's page, which states the expected result for the tests."""
_PROVES = {"raises": "raises a finding", "silent": "no finding", "undecided": "cannot be judged"}
_LINK = compile_later(r"\[([^\]\n]+)\]\(([^)\s]+)\)")
_HEADING = compile_later(r"^#+ (.*)$", re.MULTILINE)
_ONE_RANK = compile_later(r"ranks(?= \d+(?:, line|$))")
NARROW = 60  # narrower terminals have no column for labels
_MIN_WIDTH = 40


def paint(text: str, color: str, style: Style) -> str:
    """Return the text in a color, if the style has colors."""
    return f"\x1b[{_COLORS[color]}m{text}\x1b[0m" if style.color else text


def verdict_color(verdict: str) -> str:
    """Return the color of a verdict."""
    return {"ok": "ok", "degraded": "warning", "failed": "error", "unknown": "info"}[verdict]


def block(label: str, text: str, style: Style, indent: int = 2, hang: int = 10, deeper: int = 0) -> list[str]:
    """Return a paragraph behind a label, which may be empty, wrapped to the width: the label in a column of its own."""
    lead = " " * indent + label.ljust(hang)
    if style.width < NARROW:
        lead, hang_text = " " * indent + (f"{label} " if label else ""), " " * (indent + 2)
        if label and text and len(lead) + len(text.split()[0]) > max(style.width, _MIN_WIDTH):
            return [lead.rstrip(), *block("", text, style, indent + 2, 0)]
    else:
        hang_text = " " * (indent + hang + deeper)
    return _wrap(text, style, lead, hang_text) or [lead.rstrip()]


def _wrap(text: str, style: Style, first: str, rest: str) -> list[str]:
    width = max(style.width, _MIN_WIDTH)
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def describe_proof(match: re.Match[str]) -> str:
    """Return the expected result of a log on a rule's page, in words."""
    words = _ONE_RANK.sub("rank", ", ".join(option.replace("=", " ") for option in match[2].split()))
    return _PROVES[match[1]] + (f": {words}" if words else "")


def add_proofs(page: str) -> str:
    """Return the page of a rule with the expected result of each log in words."""
    return EXAMPLE.sub(lambda match: f"```text {describe_proof(match)}", page)


def fit_page(page: str, width: int) -> str:
    """Return a Markdown page for a terminal: paragraphs fit its width; code, tables and headings stay as they are."""
    page = add_proofs(page)
    if width >= PAGE_WIDTH:
        return page
    style = Style(width=width)

    def wrap_paragraph(match: re.Match[str]) -> str:
        item = _LIST_ITEM.match(match[0])
        return "\n".join(_wrap(re.sub(r"\n *", " ", match[0]), style, "", " " * (item.end() if item else 0)))

    parts = _CODE.split(page)
    parts[::2] = [_PARAGRAPH.sub(wrap_paragraph, prose) for prose in parts[::2]]
    return "".join(parts)


def page_for_terminal(page: str, style: Style) -> str:
    """Return a page for a terminal: headings in bold, code indented, and no link that leads nowhere from there."""
    parts = _CODE.split(fit_page(_LINK.sub(_address, page), style.width))
    parts[::2] = [_HEADING.sub(lambda match: paint(match[1], "bold", style), prose) for prose in parts[::2]]
    for place in range(1, len(parts), 2):
        head, *lines, _ = parts[place].split("\n")
        title = head.strip().strip("`").partition(" ")[2]
        parts[place] = "\n".join([*([f"{title}:"] if title else []), *(f"    {line}".rstrip() for line in lines)])
    return "".join(parts)


def _address(match: re.Match[str]) -> str:
    text, target = match.groups()
    if target.endswith(".md") and "/" not in target:
        return f"`nccl-inspect explain {target.removesuffix('.md').replace('_', '-')}`"
    return f"{text} ({target.removeprefix('../../')})"


def step_block(label: str, step: str, style: Style, indent: int = 2, hang: int = 10) -> list[str]:
    """Return a step of a fix; if it does not fit on one line, its comment follows on lines of its own."""
    whole = block(label, step, style, indent, hang, deeper=2)
    code, mark, words = step.partition(COMMENT)
    if len(whole) == 1 or not mark:
        return whole
    lead = " " * (indent + 2 if style.width < NARROW else indent + hang + 2) + "# "
    return block(label, code, style, indent, hang, deeper=2) + _wrap(words, style, lead, lead)


def duration(seconds: float) -> str:
    """Return a time in the largest unit with a value of at least two: ``90 s``, ``5 min``, ``30 h``, ``3 d``."""
    units = ((86_400, "d"), (3_600, "h"), (60, "min"))
    size, unit = next(((size, unit) for size, unit in units if seconds >= 2 * size), (1, "s"))
    return f"{seconds / size:.0f} {unit}"


_URL = compile_later(r"(https?://[^\s()<>\"',;]+[^\s()<>\"',;.:])")
_MAX_LINE = 500  # characters of a line of evidence, unless verbose: an issue holds 65,536 in all
_SPECIAL = compile_later(r"[\\`*_{}\[\]<>|~&$#]")
_CALLS = compile_later(r"(\\?[@#]|\bGH-)(?=\w)")


def folded_lines(title: str, lines: Iterable[str], style: Style) -> str:
    """Log lines in a folded section; the fence is longer than any in them."""
    most = sys.maxsize if style.verbose else _MAX_LINE
    text = "\n".join(cut(escape_controls(line), most) for line in lines)
    fence = "`" * max(3, _ticks(text) + 1)
    from html import escape  # loads a table of all entities

    return f"<details><summary>{escape(title)}</summary>\n\n{fence}text\n{text}\n{fence}\n\n</details>"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are markup already."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def escape_markdown(text: str) -> str:
    """Return text in which nothing is markup, a mention or a reference."""
    escaped = _SPECIAL.sub(r"\\\g<0>", escape_controls(text).strip())
    return _CALLS.sub(r"\1<!-- -->", escaped)


def step_item(step: str) -> str:
    """Return a step as an item of a list; commands as code."""
    return f"- {escape_markdown(step) if is_sentence(step) else code_span(step)}"


def code_span(text: str) -> str:
    """Return a code span that can be copied as it is."""
    text = escape_controls(text)
    ticks = "`" * (_ticks(text) + 1)
    space = " " if text.startswith(("`", " ")) or text.endswith(("`", " ")) else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def _ticks(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


@cache
def environment(folder: Path) -> Environment:
    """Return what templates in a folder are rendered with: text is escaped, and shown without control characters."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # What is marked as safe stays as it is.
        finalize=lambda it: escape_controls(it) if isinstance(it, str) and not hasattr(it, "__html__") else it,
    )
    made.filters.update(count=count, ranges=ranges, linked=_link_addresses)
    made.tests.update(sentence=is_sentence)
    return made


def _link_addresses(text: str) -> Any:
    """Return text whose web addresses are links; only for texts of rules: a log must not lead readers anywhere."""
    from markupsafe import Markup, escape

    parts = _URL.split(escape_controls(text))
    parts[::2] = [str(escape(text)) for text in parts[::2]]
    parts[1::2] = [f'<a href="{escape(part)}" rel="noreferrer">{escape(part)}</a>' for part in parts[1::2]]
    return Markup("".join(parts))  # noqa: S704
