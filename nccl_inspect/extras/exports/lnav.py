"""A format for lnav: one pattern for each event, tables of connections, communicators and the like, real samples.

lnav takes the time of a line from the line. Where NCCL prints none (INFO lines, unless NCCL_DEBUG_TIMESTAMP_LEVELS
names them), the word ``NCCL`` is given as the time: a form without a number, for which lnav takes that of the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from itertools import chain
from pathlib import Path
from typing import Any

from nccl_inspect.event.types import KINDS
from nccl_inspect.extras.exports import shared
from nccl_inspect.grammar.notation import Shape, fields, leads
from nccl_inspect.grammar.production import Production
from nccl_inspect.util.grouping import group_values

USE = "lnav -i {out} && lnav job.log"
FILE = "nccl_log.json"
_TEMPLATE: dict[str, Any] = json.loads((Path(__file__).parent / "lnav.json").read_text(encoding="utf-8"))
_TIME = (
    rf"(?|\[(?<timestamp>{shared.DATE})\] |(?<timestamp>{shared.DATE})[ \t]"
    rf"|(?=[^\n]*? (?<timestamp>NCCL) (?:{shared.LEVEL})(?: |$)))"
)
_END = r"(?:$|(?=\n))"  # the end of a line: lnav joins following lines without a prefix to the same message
_OTHER = "other"
_GENERAL = ("Message", "Notice")  # events that keep whatever their messages say
_OF_PREFIX = ("label", "host", "pid", "tid", "device", "location")
_MAX_PATTERN = 8_000  # characters of one pattern that rules messages out: with 64 KiB of code PCRE2 gives up


def export(productions: Sequence[Production]) -> str:
    """Return the format, to be installed with ``lnav -i``."""
    # Productions with NCCL's prefix, by their events that have fields of their own: ``channel_connect``.
    by_event = group_values((one.event, one) for one in productions if not one.foreign)
    events = {
        re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower(): [
            shape for production in by_event[event] for shape in shared.split_message(production)
        ]
        for event in KINDS
        if event in by_event and event not in _GENERAL
    }
    regexes, plain = {}, list[Shape]()
    for event, own in events.items():
        for number, group in enumerate(_groups(own), 1):
            # Alternatives with the same groups in the same order have one set of names.
            order = shared.merge_orders(list(map(_captured_columns, group))) or []
            padded = "|".join(_pad_pattern(shape, order) for shape in group)
            regexes[event if number == 1 else f"{event}_{number}"] = {"pattern": _line(f"(?|{padded})")}
            plain += group
    regexes |= {name: {"pattern": _line(pattern)} for name, pattern in _other_patterns(plain)}
    document = deepcopy(_TEMPLATE["format"])
    form = document["nccl_log"]
    form["regex"] = regexes
    form["value"] = dict(_values(chain(*events.values())))
    form["search-table"] = {
        f"nccl_{event}": {"pattern": "|".join(f"(?: {_plain_pattern(shape)}{_END})" for shape in own)}
        for event, own in events.items()
    }
    # A line of each event as lnav is to read it; lnav checks them when it loads the format.
    form["sample"][:0] = [
        {"line": f"host-1:4242:4242 [0] NCCL INFO {production.samples[0]}", "level": "info"}
        for production in productions
        if production.samples and not production.foreign and not production.follows
        if production.event not in _GENERAL
    ]
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _groups(shapes: Sequence[Shape]) -> list[list[Shape]]:
    """Return shapes of which one pattern can be made: those that keep one order of fields, nearly always all."""
    groups: list[list[Shape]] = []
    for shape in shapes:
        columns = ([*map(_captured_columns, (*group, shape))] for group in groups)
        fitting = (group for group, own in zip(groups, columns, strict=True) if shared.merge_orders(own) is not None)
        if group := next(fitting, None):
            group.append(shape)
        else:
            groups.append([shape])
    return groups


def column(name: str) -> str:
    """Return the name of the column of a field."""
    return f"{name}_" if name in _TEMPLATE["reserved"] else name


def _captured_columns(shape: Shape) -> list[str]:
    return [column(name) for name, _, _ in shape.fields if shared.is_shown(name)]


def _pad_pattern(shape: Shape, order: Sequence[str]) -> str:
    """Write the pattern of a shape, with groups that match nothing for the fields that it does not have."""
    names = {group: column(name) for name, _, group in shape.fields}
    kinds = shared.field_groups(shape)
    own = {name for name in names.values() if shared.is_shown(name)}
    missing = list(order)

    def capture(group: int, text: str) -> str:
        name = names[group]
        if not shared.is_shown(name):
            return f"(?:{text})"
        before = missing[: missing.index(name)]
        assert not own.intersection(before)
        del missing[: len(before) + 1]
        if kinds[group][1][:1] == "0":  # lnav takes 08 for an octal number, and makes 0 of it
            return f"{_empty_groups(before)}(?:0(?=[0-9]))*(?<{name}>[0-9]{{1,18}})"
        return f"{_empty_groups(before)}(?<{name}>{text})"

    pattern = shared.translate(shape, backtracks=True, capture=capture)
    return pattern + _empty_groups(missing)


def _empty_groups(names: Sequence[str]) -> str:
    return "".join(f"(?<{name}>(?!))?" for name in names)


def _plain_pattern(shape: Shape) -> str:
    return shared.translate(shape, backtracks=True, capture=lambda _, text: f"(?:{text})")


def _other_patterns(shapes: Sequence[Shape]) -> Iterator[tuple[str, str]]:
    """Yield patterns of all other messages, by their first letter.

    lnav stays with the pattern that fitted the line before, so that no line may fit two of them: what has a pattern
    must be ruled out here, message by message. All of them in one would be more than PCRE2 takes.
    """
    loose = [_plain_pattern(shape) for shape in shapes if "" in leads(shape.nodes)]
    by_letter: dict[str, list[str]] = {}
    for shape in shapes:
        for letter in sorted({lead[:1] for lead in leads(shape.nodes)} - {""}):
            by_letter.setdefault(letter, []).append(_plain_pattern(shape))
    if not by_letter:  # a dialect whose messages have no fields
        yield _OTHER, _exclude_patterns(loose)
        return
    parts: list[dict[str, list[str]]] = [{}]
    for letter, patterns in sorted(by_letter.items()):
        if parts[-1] and sum(map(len, (*chain(*parts[-1].values()), *patterns))) > _MAX_PATTERN:
            parts.append({})
        parts[-1][letter] = patterns
    for index, part in enumerate(parts):
        among = [*loose, *(pattern for pattern in dict.fromkeys(chain(*part.values())) if pattern not in loose)]
        yield f"{_OTHER}_{index + 1}", f"(?=[{''.join(map(re.escape, part))}])" + _exclude_patterns(among)
    yield _OTHER, f"(?![{''.join(map(re.escape, by_letter))}])" + _exclude_patterns(loose)


def _exclude_patterns(patterns: Sequence[str]) -> str:
    return (f"(?!(?:{'|'.join(patterns)}){_END})" if patterns else "") + "[^\\n]*"


def _line(message: str) -> str:
    return f"^{shared.head_pattern(_TIME)}(?: |$)(?<body>{message}){_END}"


def _values(shapes: Iterable[Shape]) -> Iterator[tuple[str, dict[str, object]]]:
    specs = group_values(
        (column(field.name), "string" if field.spec == "h" else shared.field_kind(field.spec))
        for shape in shapes
        for field in fields(shape.nodes)
        if shared.is_shown(field.name)
    )
    kinds = {name: "integer" if name in ("pid", "tid", "device") else "string" for name in _OF_PREFIX}
    kinds |= {name: own[0] if len(set(own)) == 1 else "string" for name, own in sorted(specs.items())}
    for name, what in kinds.items():
        value: dict[str, object] = {"kind": what if what in ("integer", "float") else "string"}
        if name in _TEMPLATE["identifiers"] or (name in _TEMPLATE["keys"] and what == "integer"):
            value["foreign-key" if what == "integer" else "identifier"] = True
        yield name, value
