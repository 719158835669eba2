"""Explains a line of a log: what it means, which rule it leads to, and what to do first."""

from __future__ import annotations

import re
from contextlib import suppress

from nccl_inspect.errors import NcclInspectError, NoInputError, suggestion
from nccl_inspect.grammar import engine
from nccl_inspect.judging.engine import CATEGORIES, rules_by_name
from nccl_inspect.model.finding import Finding
from nccl_inspect.pipeline import reading
from nccl_inspect.scanning import meaning
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.text import encode
from nccl_inspect.util.wording import list_words

_NOBODY = "host:1:1 [0] NCCL"  # prefix for a message without one, so that it reads as a log line

_FOLLOWING = "step 1"  # a following line, so that the message does not count as the end of a log, where ranks may hang


LIST_RULES = "run 'nccl-inspect rules --search WORD' to find one"
_SETTING = re.compile(r"\$?((?:NCCL|RCCL|OFI|FI|TORCH|CUDA)_[A-Z0-9_]+)(?:=\S*)?")

_RESULTS = {  # NCCL's results by the texts of ncclGetErrorString (src/init.cc)
    "unhandled cuda error": "ncclUnhandledCudaError",
    "unhandled system error": "ncclSystemError",
    "internal error": "ncclInternalError",
    "invalid argument": "ncclInvalidArgument",
    "invalid usage": "ncclInvalidUsage",
    "remote process exited or there was a network error": "ncclRemoteError",
}


class Explanation(Frozen):
    """Holds what a line means."""

    parts: list[tuple[str, str]]  # labels and texts, in the order in which they are shown
    fields: list[tuple[str, str, str]]  # name, value as printed, and what the name means (may be empty)
    rule: str | None  # the rule that the line leads to


def rule_page(text: str) -> str | None:
    """Return the page of the named rule; None if there is no such rule."""
    rule = rules_by_name().get(text.strip().lower())
    return rule.page if rule else None


def line(text: str) -> Explanation:
    """Return what a line means, or the known line that contains the text or is closest to it; an error if none is."""
    sense = meaning.explain_line(text, engine.load_grammar())
    if sense is None:
        words = text.strip().lower().partition(" (run with")[0].partition(" - please")[0]
        result = _RESULTS.get(words, text.strip())
        known = meaning.similar_message(result, engine.load_grammar()) if result in _RESULTS.values() else None
        if known:
            return line(known.sample)
        is_named = len(text.split()) == 1 or text.strip().lower() in CATEGORIES
        near = None if is_named else meaning.similar_message(text, engine.load_grammar())
        if near is None:
            raise _unknown(text)
        rule = rules_by_name().get(near.production.rule)
        nearest = ("nearest", f"{near.sample}   (no exact match; this is the closest known line)")
        parts = [nearest, *_parts(near), *([("rule", f"{rule.name}: {rule.title}")] if rule else [])]
        return Explanation(parts, [], rule.name if rule else None)
    parts = _parts(sense)
    if origin := sense.origin:
        printer = [
            f"host {origin.host}" if origin.host else "",
            f"pid {origin.process.pid}" if origin.process.pid >= 0 else "",
            f"thread {origin.tid}" if origin.tid >= 0 else "",
            "" if origin.device is None else f"device {origin.device} (of the thread)",
        ]
        parts[2:2] = [("from", ", ".join(filter(None, printer)))] if any(printer) else []
    # It leads to the rule that the grammar names for the line, else to one that finds something in this line alone.
    production, log_line, findings = sense.production, text, list[Finding]()
    if not (sense.origin or production.foreign or production.bare or production.traced):
        # NCCL prints errors at level WARN.
        level = sense.level or ("WARN" if production.constants.get("tone") == "error" else "INFO")
        log_line = f"{_NOBODY} {level} {sense.message}"
    with suppress(NoInputError):  # it only counts beside lines of NCCL
        job = reading.Judge(reading.Options())(reading.fold(encode(f"{log_line}\n{_FOLLOWING}\n")))
        findings = [one for one in job.findings if one.category != CATEGORIES[-1]]  # but those about the log
    finding = next((one for one in findings if one.rule == production.rule), next(iter(findings), None))
    name = finding.rule if finding else production.rule
    rule = rules_by_name().get(name)
    parts += [("rule", f"{rule.name}: {rule.title}")] if rule else []
    parts += [("first fix", finding.fix[0])] if finding and finding.fix else []
    return Explanation(parts, sense.fields, rule.name if rule else None)


def _parts(sense: meaning.Meaning) -> list[tuple[str, str]]:
    production = sense.production
    return [
        ("means", production.says),
        ("worry", sense.worry),
        ("printed by", f"{meaning.releases(production)}; {meaning.subsystems(production)}"),
        ("known as", f"{production.dialect}/{production.name}, event {production.event}"),
    ]


def _unknown(text: str) -> NcclInspectError:
    rules = rules_by_name().values()
    if text.strip().lower() in CATEGORIES:
        names = [rule.name for rule in rules if rule.category == text.strip().lower()]
        return NcclInspectError(f"'{text.strip()}' is a rule category", f"choose one of its rules: {', '.join(names)}")
    if setting := _SETTING.fullmatch(text.strip()):  # name the rules that mention it, most often first
        name = setting[1]
        times = {rule.name: len(re.findall(rf"\b{name}\b", rule.page)) for rule in rules}
        found = list_words(sorted(filter(times.get, times), key=lambda rule: -times[rule]))
        hint = f"rules that mention it: {found}" if found else "no rule mentions it; see NCCL's documentation"
        return NcclInspectError(f"{name} is a setting, not a rule or a log line", hint)
    if len(text.split()) == 1:
        similar = suggestion(text, rules_by_name(), 0.6)
        return NcclInspectError(f"no rule '{text}'", similar or LIST_RULES)
    return NcclInspectError("no such rule, and not a recognized log line", LIST_RULES)
