"""``nccl-inspect explain``: a rule's page, or what lines of a log mean."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import click

from nccl_inspect.cli import leads, shared, writing
from nccl_inspect.errors import NcclInspectError, suggestion
from nccl_inspect.grammar import engine, meaning, nearness
from nccl_inspect.ingest.prefix import Origin
from nccl_inspect.masking import masked
from nccl_inspect.report import Style
from nccl_inspect.report.words import PAGE_WIDTH, block, fitted, paint
from nccl_inspect.rules.engine import CATEGORIES, registered
from nccl_inspect.rules.facts import listed
from nccl_inspect.text import decode, printable

_MAX_PIPED = 1 << 20
"""Bytes: more than any line has."""
_MAX_LINES = 100
_SEE = "see 'nccl-inspect rules' for the names of rules"
_SETTING = re.compile(r"\$?((?:NCCL|RCCL|OFI|FI|TORCH|CUDA)_[A-Z0-9_]+)(?:=\S*)?")
_EXAMPLES = """
\b
Examples:
  nccl-inspect explain socket-instead-of-efa
  nccl-inspect explain 'vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM'
  nccl-inspect explain 'Connected all rings, use ring PXN 0 GDR 1'
  nccl-inspect explain 'NET/IB : No device found.' 'Using network Socket'
  grep WARN job.log | nccl-inspect explain
"""


@click.command(epilog=_EXAMPLES, short_help="A rule's page, or what lines mean.")
@shared.rule_or_line
@shared.output
def command(what: tuple[str, ...], out: writing.Output) -> None:
    """Print the page of a rule, or what a line of a log means, field by field.

    A line may be given with its prefix or as the bare message; quotes keep the shell from changing it. Several lines,
    each in quotes or piped in, are explained one by one. Of a part of a line the nearest known one is explained.
    """
    texts = _piped() if what in ((), ("-",)) else _separate(what)
    width = writing.columns(out.target, PAGE_WIDTH)
    if len(texts) == 1:
        out.write(_explained(masked(texts[0]), out.style, width))
        return
    out.write("\n".join(_one_by_one([masked(text) for text in texts], out.style, width)))


def _separate(what: tuple[str, ...]) -> list[str]:
    """What is to be explained: a line whose words came one by one, or several lines and rules."""
    lines = [line for text in what for line in text.splitlines() if line.strip()]
    are_words = all(len(text.split()) == 1 for text in what) and _rule_page(what[0]) is None
    return [" ".join(what)] if are_words or len(lines) < 2 else _in_one_piece(lines)


def _piped() -> list[str]:
    """The lines that standard input holds.

    Raises:
        NcclInspectError: it holds none, or too many.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise NcclInspectError("nothing to explain", "name a rule or give a line; see 'nccl-inspect rules'")
    found = [line for line in decode(sys.stdin.buffer.read(_MAX_PIPED)).splitlines() if line.strip()]
    if not found:
        raise NcclInspectError("standard input is empty", "name a rule, or pipe in a line")
    lines = _in_one_piece(found)
    if len(lines) > _MAX_LINES:
        raise NcclInspectError(
            f"standard input holds more than {_MAX_LINES} lines", "nccl-inspect annotate notes every line of a log"
        )
    return lines


def _in_one_piece(lines: list[str]) -> list[str]:
    """The lines without repetitions; one where they were one before somebody broke it."""
    line = meaning.joined(lines, engine.shipped()) if len(lines) > 1 else None
    return [line] if line else list(dict.fromkeys(lines))


def _one_by_one(texts: list[str], style: Style, width: int) -> Iterator[str]:
    """Each text with what it means below it.

    Raises:
        NcclInspectError: none of them is known.
    """
    problems = 0
    for text in texts:
        try:
            explained = _explained(text, style, width)
        except NcclInspectError as error:
            problems += 1
            explained = "\n".join(block("unknown", str(error), style, indent=0, hang=12)) + "\n"
        yield f"{paint(printable(f'> {text.strip()}'), 'bold', style)}\n{explained}"
    if problems == len(texts):
        raise NcclInspectError(f"none of the {len(texts)} lines is known", _SEE)


def _explained(text: str, style: Style, width: int) -> str:
    """The page of a rule, or the meaning of a line.

    Raises:
        NcclInspectError: it is none of the two.
    """
    page = _rule_page(text)
    return _line(text, style) if page is None else fitted(page, width)


def _rule_page(text: str) -> str | None:
    name = text.strip().lower()
    return next((entry.rule.page for entry in registered() if entry.rule.name == name), None)


def _line(text: str, style: Style) -> str:
    grammar = engine.shipped()
    found = meaning.of_line(text, grammar)
    if found is None:
        return _nearest(text, style)
    parts = _parts(found)
    if found.origin and (printer := _printer(found.origin)):
        parts.insert(2, ("from", printer))
    if lead := leads.of_line(text, found):
        parts.append(("rule", f"{lead.rule.name}: {lead.rule.title}"))
        parts.extend([("first fix", lead.fix)] if lead.fix else [])
    lines = [line for label, words in parts for line in block(label, words, style, indent=0, hang=12)]
    if found.fields:
        width = max(len(name) for name, _, _ in found.fields) + 2
        lines.append("fields")
        for name, value, sense in found.fields:
            lines.extend(block(name, f"{value}   {sense}".rstrip(), style, indent=2, hang=width))
    return "\n".join(lines) + "\n"


def _parts(found: meaning.Meaning) -> list[tuple[str, str]]:
    production = found.production
    return [
        ("means", production.says),
        ("worry", found.worry),
        ("printed by", f"{meaning.releases(production)}; {meaning.subsystems(production)}"),
        ("known as", f"{production.dialect}/{production.name}, event {production.event}"),
    ]


def _nearest(text: str, style: Style) -> str:
    """What the known line means that a text is a part of, or that differs from it in a few words.

    Raises:
        NcclInspectError: there is no such line.
    """
    is_named = len(text.split()) == 1 or text.strip().lower() in CATEGORIES
    near = None if is_named else nearness.nearest(text, engine.shipped())
    if near is None:
        raise _unknown(text)
    rules = [entry.rule for entry in registered() if entry.rule.name == near.meaning.production.rule]
    parts = [
        ("nearest", f"{near.sample}   (not known as it stands; this is the line most like it)"),
        *_parts(near.meaning),
        *(("rule", f"{rule.name}: {rule.title}") for rule in rules),
    ]
    return "\n".join(line for label, words in parts for line in block(label, words, style, indent=0, hang=12)) + "\n"


def _printer(origin: Origin) -> str:
    """Who printed a line, as far as its prefix says so; numbers that were left out are below zero."""
    told = [
        f"host {origin.host}" if origin.host else "",
        f"pid {origin.process.pid}" if origin.process.pid >= 0 else "",
        f"thread {origin.tid}" if origin.tid >= 0 else "",
        "" if origin.device is None else f"device {origin.device} (of the thread)",
    ]
    return ", ".join(filter(None, told))


def _unknown(text: str) -> NcclInspectError:
    """What is wrong with it: one word is the name of a rule, everything else a line."""
    if text.strip().lower() in CATEGORIES:
        names = [entry.rule.name for entry in registered() if entry.rule.category == text.strip().lower()]
        return NcclInspectError(f"'{text.strip()}' is a category of rules", f"name one of them: {', '.join(names)}")
    if setting := _SETTING.fullmatch(text.strip()):
        return _of_setting(setting[1])
    if len(text.split()) == 1:
        similar = suggestion(text, [entry.rule.name for entry in registered()])
        return NcclInspectError(f"no rule '{text}'", similar or _SEE)
    return NcclInspectError("neither a rule nor a line that the grammar knows", _SEE)


def _of_setting(name: str) -> NcclInspectError:
    """That a variable is none of the two, and which rules speak of it, those first that do most."""
    times = {entry.rule.name: len(re.findall(rf"\b{name}\b", entry.rule.page)) for entry in registered()}
    rules = sorted(filter(times.get, times), key=lambda rule: -times[rule])
    speak = f"rules that speak of it: {listed(rules)}" if rules else "no rule speaks of it; NCCL's manual may"
    return NcclInspectError(f"{name} is a setting, neither a rule nor a line", speak)
