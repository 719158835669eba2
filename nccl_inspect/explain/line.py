"""What a line of a log means and which rule it leads to, in labelled parts: what commands and assistants show."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nccl_inspect.errors import NcclInspectError, suggestion
from nccl_inspect.explain import lead as leads
from nccl_inspect.grammar import engine
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.judging.engine import CATEGORIES, registered
from nccl_inspect.scanning import meaning, nearness
from nccl_inspect.util.records import Record
from nccl_inspect.util.wording import listed

SEE = "see 'nccl-inspect rules' for the names of rules"
_SETTING = re.compile(r"\$?((?:NCCL|RCCL|OFI|FI|TORCH|CUDA)_[A-Z0-9_]+)(?:=\S*)?")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Explanation(Record):
    """What a line means."""

    parts: list[tuple[str, str]]
    """Labels and texts, in the order in which they are shown."""
    fields: list[tuple[str, str, str]]
    """Name, value as printed, and what the name means (may be empty)."""
    rule: str | None
    """The rule that it leads to."""


def rule_page(text: str) -> str | None:
    """The page of the rule of that name; None where there is none."""
    name = text.strip().lower()
    return next((entry.rule.page for entry in registered() if entry.rule.name == name), None)


def line(text: str) -> Explanation:
    """What a line means, or the known line that a text is a part of or that it is most like.

    Raises:
        NcclInspectError: there is no such line.
    """
    sense = meaning.of_line(text, engine.shipped())
    if sense is None:
        return _nearest(text)
    parts = _parts(sense)
    if sense.origin and (printer := _printer(sense.origin)):
        parts.insert(2, ("from", printer))
    lead = leads.of_line(text, sense)
    if lead:
        parts.append(("rule", f"{lead.rule.name}: {lead.rule.title}"))
        parts.extend([("first fix", lead.fix)] if lead.fix else [])
    return Explanation(parts, sense.fields, lead.rule.name if lead else None)


def _parts(sense: meaning.Meaning) -> list[tuple[str, str]]:
    production = sense.production
    return [
        ("means", production.says),
        ("worry", sense.worry),
        ("printed by", f"{meaning.releases(production)}; {meaning.subsystems(production)}"),
        ("known as", f"{production.dialect}/{production.name}, event {production.event}"),
    ]


def _nearest(text: str) -> Explanation:
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
    return Explanation(parts, [], rules[0].name if rules else None)


def _printer(origin: Origin) -> str:
    """Who printed a line, as far as its prefix says so; numbers that were left out are below zero."""
    parts = [
        f"host {origin.host}" if origin.host else "",
        f"pid {origin.process.pid}" if origin.process.pid >= 0 else "",
        f"thread {origin.tid}" if origin.tid >= 0 else "",
        "" if origin.device is None else f"device {origin.device} (of the thread)",
    ]
    return ", ".join(filter(None, parts))


def _unknown(text: str) -> NcclInspectError:
    """What is wrong with it: one word is the name of a rule, everything else a line."""
    if text.strip().lower() in CATEGORIES:
        names = [entry.rule.name for entry in registered() if entry.rule.category == text.strip().lower()]
        return NcclInspectError(f"'{text.strip()}' is a category of rules", f"name one of them: {', '.join(names)}")
    if setting := _SETTING.fullmatch(text.strip()):
        return _of_setting(setting[1])
    if len(text.split()) == 1:
        similar = suggestion(text, [entry.rule.name for entry in registered()])
        return NcclInspectError(f"no rule '{text}'", similar or SEE)
    return NcclInspectError("neither a rule nor a line that the grammar knows", SEE)


def _of_setting(name: str) -> NcclInspectError:
    """That a variable is none of the two, and which rules speak of it, those first that do most."""
    times = {entry.rule.name: len(re.findall(rf"\b{name}\b", entry.rule.page)) for entry in registered()}
    rules = sorted(filter(times.get, times), key=lambda rule: -times[rule])
    speak = f"rules that speak of it: {listed(rules)}" if rules else "no rule speaks of it; NCCL's manual may"
    return NcclInspectError(f"{name} is a setting, neither a rule nor a line", speak)
