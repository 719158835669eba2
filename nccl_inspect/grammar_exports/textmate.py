"""A TextMate grammar, with the folder of a Visual Studio Code extension around it.

A line is its head, then the message: one that becomes an event is parsed, one that says that something failed is
marked as a whole, and in all others settings, addresses and numbers are found. Scopes are those that themes colour.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from nccl_inspect._version import __version__
from nccl_inspect.grammar.production import Production
from nccl_inspect.grammar.shape import Shape
from nccl_inspect.grammar_exports import heads
from nccl_inspect.grammar_exports.events import groups, is_shown, kind, typed
from nccl_inspect.grammar_exports.patterns import BACKTRACKING, shape, translated

USE = "cp -r {out} ~/.vscode/extensions/nccl-log and reload the window"
SCOPE = "text.log.nccl"
_FILE = "syntaxes/nccl-log.tmLanguage.json"
_HEAD = {
    "timestamp": "constant.numeric.timestamp.nccl",
    "label": "comment.line.label.nccl",
    "host": "entity.name.tag.host.nccl",
    "pid": "constant.numeric.pid.nccl",
    "tid": "constant.numeric.tid.nccl",
    "device": "constant.numeric.device.nccl",
    "location": "entity.name.function.location.nccl",
}
_LEVELS = {
    "info": ("INFO", "token.info-token markup.inserted.level.info.nccl"),
    "detail": ("TRACE|CALL", "token.debug-token comment.level.detail.nccl"),
    "warning": ("WARN|ATTN", "token.warn-token markup.deleted.level.warning.nccl"),
    "failure": ("ABORT", "token.error-token invalid.illegal.level.failure.nccl"),
}
_FAILS = {"error": "markup.deleted.message.error.nccl", "echo": "markup.deleted.message.echo.nccl"}
_PARTS = (
    (r"\bvia ([A-Z]+)(/[^ \n]*)?", {"1": "storage.type.transport.nccl", "2": "support.constant.detail.nccl"}),
    (r"\b((?:NCCL|RCCL|OFI|FI|CUDA|TORCH_NCCL)_[A-Z0-9_]+)\b", {"1": "variable.other.setting.nccl"}),
    (r"\b0x[0-9a-f]+\b", {"0": "constant.numeric.hex.address.nccl"}),
    (r"\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?:<[0-9]+>)?", {"0": "constant.other.address.nccl"}),
    (r"(?i)\b(?:error|failed|failure|fatal|unable|abort(?:ed|ing)?)\b", {"0": "invalid.illegal.word.nccl"}),
    (r"\b[0-9]+(?:\.[0-9]+)?\b", {"0": "constant.numeric.nccl"}),
)
_README = """# NCCL log

Colors for what NCCL and its plugins print with `NCCL_DEBUG=INFO`: prefix, levels, ranks, channels, transports,
settings, warnings and errors. Written by `nccl-inspect grammar --export textmate`; it has no code.

Copy this folder to `~/.vscode/extensions/nccl-log` and reload the window; on a remote machine to
`~/.vscode-server/extensions/nccl-log`. Files named `*.nccl`, `*nccl*.log`, and files whose first line is one of NCCL,
have the language *NCCL log*; for others choose it in the status bar, or say so in the settings:
`"files.associations": {"job.log": "nccl-log"}`.
"""


def export(productions: Sequence[Production]) -> dict[str, str]:
    """The grammar, and the other files of the extension."""
    return {
        _FILE: _document(_grammar(productions)),
        "package.json": _document(_package()),
        "language-configuration.json": _document({"brackets": [["[", "]"], ["(", ")"], ["{", "}"], ["<", ">"]]}),
        "README.md": _README,
    }


def _document(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _package() -> dict[str, Any]:
    language = {
        "id": "nccl-log",
        "aliases": ["NCCL log"],
        "extensions": [".nccl"],
        "filenamePatterns": ["*nccl*.log"],
        "firstLine": r"^.*(?:\bNCCL (?:INFO|WARN|ATTN) |^NCCL version )",
        "configuration": "./language-configuration.json",
    }
    return {
        "name": "nccl-log",
        "displayName": "NCCL log",
        "description": "Colors for NCCL_DEBUG=INFO logs",
        "version": __version__.partition("+")[0].partition(".dev")[0],
        "publisher": "nccl-inspect",
        "license": "Apache-2.0",
        "engines": {"vscode": "^1.60.0"},
        "categories": ["Programming Languages"],
        "contributes": {
            "languages": [language],
            "grammars": [{"language": "nccl-log", "scopeName": SCOPE, "path": f"./{_FILE}"}],
        },
    }


def _grammar(productions: Sequence[Production]) -> dict[str, Any]:
    return {
        "name": "NCCL log",
        "scopeName": SCOPE,
        "fileTypes": ["nccl"],
        "patterns": [{"include": f"#{level}"} for level in _LEVELS]
        + [{"match": r"^NCCL version ([^ \n]+)", "captures": {"1": {"name": "constant.numeric.version.nccl"}}}],
        "repository": {
            **{level: _line(level, pattern, scope) for level, (pattern, scope) in _LEVELS.items()},
            "message": {"patterns": [*_messages(productions), {"include": "#parts"}]},
            "parts": {"patterns": [{"match": pattern, "captures": _named(scopes)} for pattern, scopes in _PARTS]},
        },
    }


def _line(level: str, pattern: str, scope: str) -> dict[str, Any]:
    """A line of some levels; the groups of its head are in the order in which they are written."""
    names: list[str] = []

    def named(name: str, text: str) -> str:
        names.append(scope if name == "level" else _HEAD[name])
        return f"({pattern if name == 'level' else text})"

    begin = f"^{heads.head(named)}(?: |$)"
    return {
        "name": f"meta.line.{level}.nccl",
        "begin": begin,
        "end": "$",
        "beginCaptures": _named({str(index): name for index, name in enumerate(names, 1)}),
        "patterns": [{"include": "#message"}],
    }


def _named(scopes: dict[str, str]) -> dict[str, dict[str, str]]:
    return {group: {"name": scope} for group, scope in scopes.items()}


def _messages(productions: Sequence[Production]) -> Iterator[dict[str, Any]]:
    """Messages with their fields, then those that say that something failed."""
    for event, own in typed(productions).items():
        for production in own:
            pattern, scopes = _fields(shape(production))
            yield {
                "name": f"meta.message.{event.lower()}.nccl",
                "comment": production.name,
                "match": rf"\G(?:{pattern})$",
                "captures": _named(scopes),
            }
    for production in productions:
        scope = _FAILS.get(production.constants.get("tone", ""))
        if scope and production.event == "Notice" and not production.foreign:
            pattern = translated(shape(production), BACKTRACKING, lambda _, text: f"(?:{text})")
            yield {"name": scope, "comment": production.name, "match": rf"\G(?:{pattern})$"}


def _fields(form: Shape) -> tuple[str, dict[str, str]]:
    """The pattern of a message, and the scopes of its groups by their numbers."""
    kinds = groups(form)
    scopes: dict[str, str] = {}

    def capture(group: int, text: str) -> str:
        name, spec = kinds[group]
        if not is_shown(name):
            return f"(?:{text})"
        scopes[str(len(scopes) + 1)] = _scope(name, spec)
        return f"({text})"

    return translated(form, BACKTRACKING, capture), scopes


def _scope(name: str, spec: str) -> str:
    """What a field is for a theme."""
    if name == "transport":
        return "storage.type.transport.nccl"
    if spec.startswith(("=", "?")):
        return f"support.constant.{name}.nccl"
    if spec in ("p", "h", "hx", "id"):
        return f"constant.numeric.hex.{name}.nccl"
    if spec == "v":
        return f"variable.other.{name}.nccl"
    if kind(spec) in ("integer", "float", "list") or spec in ("num", "i"):
        return f"constant.numeric.{name}.nccl"
    return f"string.unquoted.{name}.nccl"
