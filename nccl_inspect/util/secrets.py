"""Secrets in text: the one table of the names that announce them, and of the shapes in which their values stand.

The model masks them where lines and values enter it, so that no rule, report or export ever has them. Ranks that have
different secrets still differ; only the values are gone. ``anonymize`` finds them by the same table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

MASK = "***"
_KEYS = (  # words before `key` that make it a secret: `API_KEY`, `accessKeyId`, `s3.secret.key`
    *("api", "access", "private", "auth", "storage", "account"),
    *("encryption", "signing", "secret", "session", "wandb"),
)
_HINTS = (  # one of these is in each text that hides something: looking for them is ten times as fast as the patterns
    *("token", "secret", "passw", "passphrase", "credential", "://", "bearer", "authorization", "basic ", "cookie"),
    *("_key", "-key", ".key", "_pwd", "_pass", "webhook", "signature", "sig=", "auth", "curl ", "mysql", "mariadb"),
    *("login", "private key-", "sshpass", "proxy-user", "redis-cli", "ldap", *(f"{word}key" for word in _KEYS)),
)
_TEXT = ("pad", "eos", "bos", "unk", "sep", "cls", "mask", "image", "special", "stop", "end", "start", "max", "num")
_TOKEN = "".join(rf"(?<!(?i:{word})[_-])" for word in _TEXT) + r"(?:TOKEN(?!IZ|S)|[Tt]oken(?!s|iz))"
"""Counts such as ``max_tokens``, ``pad_token`` and ``TOKENIZERS_PARALLELISM`` are not secrets."""
_WORD = (
    rf"(?:(?i:secret|passw(?:or)?d|passphrase|credential|webhook|access_?signature|(?:{'|'.join(_KEYS)})[._-]?key)"
    rf"|(?<=[A-Za-z0-9]_)(?i:pwd)(?![A-Za-z])|(?<=[A-Z0-9]_)PASS(?![A-Za-z])|{_TOKEN})"
)
_SECRET_NAME = _WORD + r"[\w.-]{0,40}"
"""The rest of a name is limited, so that a line of any length takes a time that is linear in it."""
_OPENED = re.compile(r"\\*[\"']")
_SHORT = 4  # characters below which a secret is not looked for inside other text


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    """Return where secrets stand (``secrets.txt``); most logs never need these, and compiling them takes a while."""
    parts = {"secret": _SECRET_NAME, "token": _TOKEN}
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")

    def fill(pattern: str) -> str:
        return re.sub("«(\\w+)»", lambda match: parts[match[1]], pattern)

    for name, pattern in re.findall(r"^(\w+): (.+)", text, re.MULTILINE):
        parts[name] = fill(pattern)
    return tuple(re.compile(fill(line)) for line in text.split("\n\n")[2].splitlines())


def find_spans(text: str) -> list[tuple[int, int]]:
    """Return where the secrets of a text stand, without the quotes around them, in their order; none overlap."""
    if not may_hide(text):
        return []
    found = []
    for pattern in _patterns():
        for match in pattern.finditer(text):
            start, end = match.span("value")
            if opened := _OPENED.match(text, start, end):
                start = opened.end()
                end -= len(opened[0]) * text.endswith(opened[0], start, end)
            if start < end and text[start:end] != MASK:
                found.append((start, end))
    spans: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if spans and start < spans[-1][1]:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
        else:
            spans.append((start, end))
    return spans


def replace_secrets(text: str, new: Callable[[str], str]) -> str:
    """Return the text with another one instead of each secret in it."""
    parts, at = [], 0
    for start, end in find_spans(text):
        parts += [text[at:start], new(text[start:end])]
        at = end
    return "".join([*parts, text[at:]])


def is_secret(name: str) -> bool:
    """Return whether a variable of that name holds a secret."""
    return may_hide(name) and re.search(_WORD, name) is not None


def mask_secrets(text: str) -> str:
    """Return the text with ``***`` instead of each secret in it; what is masked already stays as it is."""
    return replace_secrets(text, lambda _: MASK)


def mask_value(name: str, value: str) -> str:
    """Return the value of a variable, hidden when its name says that it is a secret."""
    return MASK if value and is_secret(name) else mask_secrets(value)


def find_secrets(text: str) -> list[str]:
    """Return the secrets that :func:`mask_secrets` hides, the longest first."""
    return sorted({text[start:end] for start, end in find_spans(text)}, key=len, reverse=True)


def remove_secrets(text: str, secrets: list[str]) -> str:
    """Return the text without these secrets, wherever in it they stand."""
    for secret in secrets:
        if text == secret:
            return MASK
        if len(secret) >= _SHORT:
            text = text.replace(secret, MASK)
    return mask_secrets(text)


def may_hide(text: str) -> bool:
    """Return whether there can be a secret in a text, of one line or of many."""
    lowered = text.replace("tokens", "t s").lower()  # no pattern takes these for a token, and trainers count them
    return any(map(lowered.__contains__, _HINTS))


def list_hinted(lines: Sequence[str]) -> list[int]:
    """Return the places of the lines in which there can be a secret."""
    whole = "\n".join(lines).lower()
    hints = [hint for hint in _HINTS if hint in whole]
    lowered = whole.split("\n") if hints else ()
    return [at for at, line in enumerate(lowered) if any(map(line.__contains__, hints))]
