"""``nccl-inspect explain``: a rule's page, or what one line of a log means."""

from __future__ import annotations

import re
import sys

import click

from nccl_inspect.cli import leads, shared
from nccl_inspect.errors import NcclInspectError, suggestion
from nccl_inspect.grammar import engine, meaning
from nccl_inspect.ingest.prefix import Origin
from nccl_inspect.masking import masked
from nccl_inspect.report import Style
from nccl_inspect.report.words import PAGE_WIDTH, block, fitted
from nccl_inspect.rules.engine import CATEGORIES, registered
from nccl_inspect.rules.facts import count, listed
from nccl_inspect.text import decode

_MAX_PIPED = 1 << 20
"""Bytes: more than any line has."""
_SETTING = re.compile(r"\$?((?:NCCL|RCCL|OFI|FI|TORCH|CUDA)_[A-Z0-9_]+)(?:=\S*)?")
_EXAMPLES = """
\b
Examples:
  nccl-inspect explain socket-instead-of-efa
  nccl-inspect explain 'vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM'
  nccl-inspect explain 'Connected all rings, use ring PXN 0 GDR 1'
  tail -n 1 job.log | nccl-inspect explain
"""


@click.command(epilog=_EXAMPLES, short_help="A rule's page, or the meaning of one line.")
@shared.rule_or_line
@shared.output
def command(what: tuple[str, ...], out: shared.Output) -> None:
    """Print the page of a rule, or what one line of a log means, field by field.

    A line may be given with its prefix or as the bare message; quotes keep the shell from changing it. It may be
    piped in, too.
    """
    text = masked(_piped() if what in ((), ("-",)) else " ".join(what))
    for entry in registered():
        if entry.rule.name == text.strip().lower():
            out.write(fitted(entry.rule.page, shared.columns(out.target, PAGE_WIDTH)))
            return
    out.write(_line(text, out.style))


def _piped() -> str:
    """The one line that standard input holds, also where it was broken by hand.

    Raises:
        NcclInspectError: it holds none, or several.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise NcclInspectError("nothing to explain", "name a rule or give a line; see 'nccl-inspect rules'")
    found = [line for line in decode(sys.stdin.buffer.read(_MAX_PIPED)).splitlines() if line.strip()]
    if not found:
        raise NcclInspectError("standard input is empty", "name a rule, or pipe in a line")
    line = found[0] if len(found) == 1 else meaning.joined(found, engine.shipped())
    if line is None:
        raise NcclInspectError("standard input holds more than one line", "nccl-inspect annotate notes every line")
    return line


def _line(text: str, style: Style) -> str:
    grammar = engine.shipped()
    found = meaning.of_line(text, grammar)
    if found is None:
        raise _unknown(text)
    production = found.production
    parts = [
        ("means", production.says),
        ("worry", found.worry),
        ("printed by", f"{meaning.releases(production)}; {meaning.subsystems(production)}"),
        ("known as", f"{production.dialect}/{production.name}, event {production.event}"),
    ]
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
    see = "see 'nccl-inspect rules' for the names of rules"
    if text.strip().lower() in CATEGORIES:
        names = [entry.rule.name for entry in registered() if entry.rule.category == text.strip().lower()]
        return NcclInspectError(f"'{text.strip()}' is a category of rules", f"name one of them: {', '.join(names)}")
    if setting := _SETTING.fullmatch(text.strip()):
        return _of_setting(setting[1])
    near = meaning.nearest(text, engine.shipped())
    if len(text.split()) == 1:
        similar = suggestion(text, [entry.rule.name for entry in registered()])
        return NcclInspectError(f"no rule '{text}'", similar or see)
    if near is None:
        return NcclInspectError("neither a rule nor a line that the grammar knows", see)
    production, fits = near
    nearest = f"nearest is {production.dialect}/{production.name}, which fits {count(fits, 'byte')}"
    return NcclInspectError(f"not a line that the grammar knows; {nearest}", see)


def _of_setting(name: str) -> NcclInspectError:
    """That a variable is none of the two, and which rules speak of it, those first that do most."""
    times = {entry.rule.name: len(re.findall(rf"\b{name}\b", entry.rule.page)) for entry in registered()}
    rules = sorted(filter(times.get, times), key=lambda rule: -times[rule])
    speak = f"rules that speak of it: {listed(rules)}" if rules else "no rule speaks of it; NCCL's manual may"
    return NcclInspectError(f"{name} is a setting, neither a rule nor a line", speak)
