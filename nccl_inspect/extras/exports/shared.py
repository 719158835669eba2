"""Patterns of the grammar for the regular expressions of other programs.

The compiled pattern of a message is parsed and written again, so that what an export matches is what the reader
matches. Engines that try again keep the atomic groups that make it linear; engines that never do need none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from itertools import count, product

from nccl_inspect.grammar.notation import Choice, Field, Literal, Sequence, Shape, field_type, fields, parse
from nccl_inspect.grammar.production import Production
from nccl_inspect.util.levels import ANY

# How NCCL's lines begin

LEVEL = ANY.decode("ascii")
DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
"""NCCL's own time (since 2.26 before WARN, NCCL_DEBUG_TIMESTAMP_FORMAT) and that of collectors."""
LABEL = r"[^\n]{0,300}?[ \t>|\]:]"  # what else a launcher puts there: it ends with a blank or a mark
HOST = r'[A-Za-z0-9_][^\s:\[\]<>(){},"|\\]*'
NUMBER = r"[0-9]{1,10}"
DEVICE = r"-?[0-9]{1,10}"
LOCATION = r"[^ \n][^\n]*?:[0-9]{1,7}(?: \([^()\n]*\))?"
"""``init.cc:737``, with the function since 2.30.7; plugins give what they like."""
HEAD_FIELDS = {
    "timestamp": "time as printed, where a line has one",
    "label": "what a launcher put in front",
    "host": "host, or pod",
    "pid": "process",
    "tid": "thread",
    "device": "current CUDA device of the thread that prints, not always that of the rank",
    "location": "file:line (function) of a WARN",
    "level": "INFO, WARN, ATTN, TRACE, CALL or ABORT",
}


def head_pattern(time: str = rf"(?:\[?(?<timestamp>{DATE})\]? )?") -> str:
    """Return the pattern up to the blank before the message, without anchors, from that of the time and its blank."""
    return (
        rf"{time}(?:(?<label>{LABEL}))??(?<host>{HOST}):(?<pid>{NUMBER}):(?<tid>{NUMBER})"
        rf"(?: \[(?<device>{DEVICE})\])?(?: (?<location>{LOCATION}))? NCCL (?<level>{LEVEL})"
    )


# Fields of messages


def is_shown(name: str) -> bool:
    """Return whether a field is part of the event: names that begin with ``_`` are read for the pattern only."""
    return not name.startswith("_")


def field_kind(spec: str) -> str:
    """Return what a field holds: ``integer``, ``float``, ``boolean``, ``list`` or ``string``."""
    if spec.startswith("*"):
        return "list"
    return {int: "integer", float: "float", bool: "boolean"}.get(field_type(spec).python, "string")


def field_groups(form: Shape) -> dict[int, tuple[str, str]]:
    """Return the name and the type of the field of each group of a shape."""
    return {group: (field.name, field.spec) for (*_, group), field in zip(form.fields, fields(form.nodes), strict=True)}


def merge_orders(lists: list[list[str]]) -> list[str] | None:
    """Return one order of names that all lists keep; None where two contradict each other."""
    sorter = TopologicalSorter[str]()
    for names in lists:
        for at, name in enumerate(names):
            sorter.add(name, *names[:at][-1:])
    with suppress(CycleError):
        return list(sorter.static_order())
    return None


# Patterns of messages

Capture = Callable[[int, str], str]  # writes a group of a pattern: gets its number and what is in it


_TOKEN = re.compile(
    r"\\.|\[(?:\\.|[^\]\\])*\]|\(\?[>:=!]|[()|]|(?P<count>[*+?]|\{\d+(?:,\d*)?\})(?P<mode>[+?]?)|[^\\\[\](){}*+?|]",
    re.DOTALL,
)
_PLAIN = frozenset(" -#&~'\"/")  # characters that Python escapes and that need no escape
_CHARACTERS = {".": r"[^\n]", "\\d": "[0-9]", "\\Z": r"(?:$|\n)"}
_MAX_SPLIT = 64  # shapes that one with repeated fields may be split into


def translate(shape: Shape, backtracks: bool, capture: Capture) -> str:
    """Return the pattern of a whole message, without anchors; ``capture`` writes the groups of fields.

    A program that backtracks tries again where a match fails, as PCRE2 does: it knows atomic groups and looks ahead.
    Rust's regex and RE2 do not, and long counted runs cost them memory.
    """
    own = {group for _, _, group in shape.fields}
    tokens, groups = _TOKEN.finditer(shape.pattern), count(1)

    def take_group() -> str:
        atoms: list[str] = []
        for token in tokens:
            if (text := token[0]) == ")":
                break
            if text == "(":
                group, inside = next(groups), take_group()
                atoms.append(capture(group, inside) if group in own else f"(?:{inside})")
            elif text[0] == "(":
                inside = take_group()
                is_look = text in ("(?=", "(?!")
                opening = text if backtracks else text.replace(">", ":")
                atoms.append(f"{opening}{inside})" if backtracks or not is_look else "")
            elif token["count"] and backtracks:
                atom, times, mode = atoms[-1], token["count"], token["mode"]
                # A list of numbers: of a thousand ranks each would be kept to be tried again.
                if times == "*" and atom.startswith("(?:") and "[^" not in atom:
                    atom = f"(?>{atom[3:]}"
                # Oniguruma reads {1,9}+ as a repeated repetition, so that what is never given back stands in a group.
                atoms[-1] = f"(?>{atom}{times})" if mode == "+" else f"{atom}{times}{mode}"
            elif times := token["count"]:
                least, _, most = times.strip("{}").partition(",")
                if most.isdecimal() and int(most) > _MAX_SPLIT:
                    times = "*" if least == "0" else "+"
                atoms[-1] += f"{times}{token['mode'].strip('+')}"
            elif text.startswith("[^"):
                # None continues the next line, which some programs take for a part of the message.
                atoms.append(rf"{text[:-1]}\n]")
            else:
                atoms.append(_CHARACTERS.get(text) or (text[1] if text[0] == "\\" and text[1] in _PLAIN else text))
        return "".join(atoms)

    return take_group()


def split_message(production: Production) -> list[Shape]:
    """Return the message as shapes in which each name stands once, for programs that give one group to a name.

    ``via P2P/…`` states ``transport=P2P``: programs that know no constants can take it from there.
    """
    fragments = {name: Shape(parse(text), whole=False) for name, text in production.details.fragments.items()}
    nodes = parse(production.line)
    for name, value in production.constants.items():
        # Only names in capitals are NCCL's words; ``loaded`` is ours, and occurs in some messages by chance.
        word = re.compile(rf"(?<!\w)({re.escape(value)})(?!\w)")
        parts = [word.split(node.text) if isinstance(node, Literal) else [] for node in nodes]
        places = [at for at, part in enumerate(parts) for _ in part[1::2]]
        if value.isupper() and len(places) == 1:  # the one literal that states it becomes a field
            at = places[0]
            front, _, behind = parts[at]
            stated = (Literal(front), Field(name, f"={value}"), Literal(behind))
            kept = (part for part in stated if not isinstance(part, Literal) or part.text)
            nodes = (*nodes[:at], *kept, *nodes[at + 1 :])
    return [Shape(way, fragments) for way in _split_nodes(nodes)]


def _split_nodes(nodes: Sequence) -> list[Sequence]:
    """Return the nodes in each way to take the options that name a field more than once."""
    names = Counter(field.name for field in fields(nodes))
    if max(names.values(), default=1) == 1:
        return [nodes]
    ways: list[list[Sequence]] = []
    for node in nodes:
        if isinstance(node, Choice) and any(names[field.name] > 1 for field in fields((node,))):
            options = [way for option in node.options for way in _split_nodes(option)]
            ways.append([*options, ()] if node.optional else options)
        else:
            ways.append([(node,)])
    splits = [tuple(part for way in chosen for part in way) for chosen in product(*ways)]
    return [_name_once(way) for way in splits] if len(splits) <= _MAX_SPLIT else [_name_once(nodes)]


def _name_once(nodes: Sequence) -> Sequence:
    """Return the same with only the first of several fields of a name; the others become nameless."""
    seen: set[str] = set()

    def rename_fields(nodes: Sequence) -> Iterator[Literal | Field | Choice]:
        for node in nodes:
            if isinstance(node, Choice):
                yield Choice(tuple(tuple(rename_fields(option)) for option in node.options), node.optional)
            elif isinstance(node, Field) and node.name in seen:
                yield Field(f"_{node.name}", node.spec)
            else:
                seen.update([node.name] if isinstance(node, Field) else [])
                yield node

    return tuple(rename_fields(nodes))
