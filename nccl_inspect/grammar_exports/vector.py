"""A program in Vector's remap language (VRL) and a pipeline that uses it: lines become ``.nccl`` with typed fields.

Only messages that become an event of their own get fields: Vector takes about 20 ms to compile each of them. Its
regular expressions never try again, so that they know no look-ahead: a few messages that need it have no fields
either. They are named in the head of the program.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from nccl_inspect.grammar.notation import leads
from nccl_inspect.grammar.production import Production
from nccl_inspect.grammar.shape import Shape
from nccl_inspect.grammar_exports import heads
from nccl_inspect.grammar_exports.events import groups, is_shown, kind, typed
from nccl_inspect.grammar_exports.patterns import AUTOMATON, shape, translated

USE = "cd {out} && vector --config vector.yaml < job.log"
_FILE = "nccl.vrl"
_MAX_LEADS = 4
_MIN_LEAD = 2
_INTEGERS = frozenset(("pid", "tid", "device"))


def export(productions: Sequence[Production]) -> dict[str, str]:
    """The program, and a pipeline around it."""
    pipeline = (Path(__file__).parent / "vector.yaml").read_text(encoding="utf-8")
    return {_FILE: "\n".join(_program(productions)) + "\n", "vector.yaml": pipeline}


def is_possible(production: Production) -> bool:
    """Whether a message can be distinguished from others without lookahead."""
    return "(?!" not in production.shape.pattern


def _program(productions: Sequence[Production]) -> Iterator[str]:
    typed_productions = [production for own in typed(productions).values() for production in own]
    missing = [production.name for production in typed_productions if not is_possible(production)]
    yield "# Written by nccl-inspect grammar --export vector: lines of NCCL become .nccl with typed fields."
    if missing:
        yield f"# Left as messages without fields: {', '.join(missing)}."
    yield f"head, err = parse_regex(.message, {_raw(f'^{heads.head(_named)}(?: (?P<message>.*))?$')})"
    yield "if err == null {"
    yield "  text = to_string(head.message)"
    yield "  .nccl = {}"
    yield "  .nccl.message = text"
    for name in heads.FIELDS:
        value = f"to_int!(head.{name})" if name in _INTEGERS else f"head.{name}"
        yield f"  if head.{name} != null {{ .nccl.{name} = {value} }}"
    yield "  found = false"
    for letter, own in sorted(_by_letter(typed_productions).items()):
        yield f"  if {'true' if not letter else f'starts_with(text, {json.dumps(letter, ensure_ascii=False)})'} {{"
        for production in own:
            yield from _message(production, letter)
        yield "  }"
    yield "}"


def _named(name: str, pattern: str) -> str:
    return f"(?P<{name}>{pattern})"


def _by_letter(productions: Sequence[Production]) -> dict[str, list[Production]]:
    """Messages by the letter that they begin with, so that few are tried; those that begin with anything last."""
    by_letter: dict[str, list[Production]] = {}
    for production in productions:
        if is_possible(production):
            for letter in _letters(production):
                by_letter.setdefault(letter, []).append(production)
    anything = by_letter.pop("", [])
    return by_letter | ({"": anything} if anything else {})


def _letters(production: Production) -> set[str]:
    letters = {lead[:1] for lead in leads(_shape(production).nodes)}
    return {""} if "" in letters else letters


@cache
def _shape(production: Production) -> Shape:
    return shape(production)


def _message(production: Production, letter: str) -> Iterator[str]:
    """The statements that try one message."""
    form = _shape(production)
    begins = _begins(form, letter)
    names, kinds = _groups(form), groups(form)
    yield f"    if !found{f' && {begins}' if begins else ''} {{"
    yield f"      f, err = parse_regex(text, {_pattern(form)})"
    yield "      if err == null {"
    yield "        found = true"
    yield f"        .nccl.production = {json.dumps(production.name)}"
    yield f"        .nccl.dialect = {json.dumps(production.dialect)}"
    yield f"        .nccl.event = {json.dumps(production.event)}"
    yield f"        .nccl.fields = {json.dumps(dict(production.constants))}"
    for group, name in names.items():
        field, spec = kinds[group]
        yield f"        if f.{name} != null {{ .nccl.fields.{field} = {_value(name, spec)} }}"
    yield "      }"
    yield "    }"


def _groups(form: Shape) -> dict[int, str]:
    """The name of each group that is shown: of several of one field all but the first have a number."""
    seen: Counter[str] = Counter()
    names = {}
    for group, (name, _) in groups(form).items():
        seen[name] += 1
        if is_shown(name):
            names[group] = name if seen[name] == 1 else f"{name}_{seen[name]}"
    return names


@cache
def _pattern(form: Shape) -> str:
    names = _groups(form)

    def capture(group: int, text: str) -> str:
        return f"(?P<{names[group]}>{text})" if group in names else f"(?:{text})"

    return _raw(f"^(?:{translated(form, AUTOMATON, capture)})$")


def _begins(form: Shape, letter: str) -> str:
    """What is cheaper to ask than the pattern; empty where the letter says as much."""
    texts = [lead for lead in leads(form.nodes) if lead.startswith(letter)]
    if len(texts) > _MAX_LEADS or any(len(text) < _MIN_LEAD for text in texts):
        return ""
    asked = " || ".join(f"starts_with(text, {json.dumps(text, ensure_ascii=False)})" for text in texts)
    return f"({asked})" if len(texts) > 1 else asked


def _value(name: str, spec: str) -> str:
    """What a captured text is as a value."""
    match kind(spec):
        case "integer" if spec == "h":  # 64 bits without a sign may not fit
            return f"parse_int(f.{name}, 16) ?? f.{name}"
        case "integer":
            return f"to_int!(strip_whitespace!(f.{name}))"
        case "float":
            return f"to_float!(strip_whitespace!(f.{name}))"
        case "boolean":
            return f'f.{name} != ""'
        case _:
            return f"f.{name}"


def _raw(pattern: str) -> str:
    """A regular expression as VRL writes it, where no quote may stand inside."""
    return "r'" + pattern.replace("'", r"\x27") + "'"
