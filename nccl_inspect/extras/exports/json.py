"""The whole grammar as one document, ``nccl-inspect-grammar/1``: its schema is in the package."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nccl_inspect.extras.exports import shared
from nccl_inspect.grammar.notation import fields
from nccl_inspect.grammar.production import Production
from nccl_inspect.scanning import meaning
from nccl_inspect.util.records import pick_fields

USE = "jq '.messages[] | select(.event == \"ChannelConnect\") | .line' {out}"
FILE = "nccl-grammar.json"
_SCHEMA = "nccl-inspect-grammar/1"


def export(productions: Sequence[Production]) -> str:
    """Return the messages in the order of their dialects, families and names."""
    ordered = sorted(productions, key=lambda production: (production.dialect, production.family, production.name))
    document = {
        "schema": _SCHEMA,
        "head": {"pattern": f"^{shared.head_pattern()}", "fields": shared.HEAD_FIELDS},
        "messages": [_message(production) for production in ordered],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _message(production: Production) -> dict[str, Any]:
    first, _, last = production.versions.partition("..")
    patterns = []
    for shape in shared.split_message(production):
        names = {group: name for name, _, group in shape.fields}

        def capture(group: int, text: str, names: dict[int, str] = names) -> str:
            return f"(?<{names[group]}>{text})" if shared.is_shown(names[group]) else f"(?:{text})"

        text = shared.translate(shape, backtracks=False, capture=capture)
        patterns.append(f"^(?:{text})$" if "|" in text else f"^{text}$")
    return {
        **pick_fields(production, "name", "dialect", "family", "line"),
        "fragments": {
            name: line for name, line in production.details.fragments.items() if f":*{name}}}" in production.line
        },
        "patterns": patterns,
        "exact": "(?!" not in production.shape.pattern,
        "event": production.event,
        "constants": dict(production.constants),
        "fields": [
            {"name": name, "type": shared.field_kind(spec), "meaning": meaning.glossary().get(name, "")}
            for name, spec in {field.name: field.spec for field in fields(production.shape.nodes)}.items()
            if shared.is_shown(name)
        ],
        "first_version": first or None,
        "last_version": (last if ".." in production.versions else first) or None,
        "subsystems": production.subsys.split("|"),
        "prefix": "none" if production.foreign or production.follows else "optional" if production.bare else "nccl",
        "follows": production.follows or None,
        "says": production.says,
        "rule": production.rule or None,
        "samples": list(production.samples),
    }
