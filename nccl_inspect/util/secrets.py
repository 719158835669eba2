"""Hides secrets in a log: values of variables named like one, passwords in URLs, what authorizes a request.

The model hides them where lines and values enter it, so that no rule, report or export ever has them. Ranks that have
different secrets still differ; only the values are gone.
"""

from __future__ import annotations

import re
from functools import cache

MASK = "***"
_HINTS = (
    *("token", "secret", "passw", "passphrase", "credential", "://", "bearer", "authorization"),
    *("_key", "-key", "apikey", "accesskey", "privatekey", "authkey"),
)
"""One of these is in each text that hides something: looking for them is ten times as fast as the patterns."""
_WORD = (
    r"(?:(?i:secret|passw(?:or)?d|passphrase|credential|(?:api|access|private|auth)[_-]?key)|TOKEN(?!IZ)|"
    r"[Tt]oken(?!s|iz))"
)
"""Counts such as ``max_tokens`` and ``TOKENIZERS_PARALLELISM`` are not secrets."""
_NAME = r"[\w.-]{0,40}"
"""The rest of a name: limited, so that a line of any length takes a time that is linear in it."""
_VALUE = r"""(?P<value>"[^"]*"|'[^']*'|[^\s"']+)"""
_SHORT = 4
"""Characters below which a secret is not looked for inside other text."""


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    """Return where secrets stand; most logs never need these, and compiling them takes a while."""
    sources = (
        rf"{_WORD}{_NAME}(?: set| reset| environment variable)(?: (?:by|from) environment)? to (?P<value>.+)",
        rf"""{_WORD}{_NAME}["']?\s*[=:]\s*{_VALUE}""",
        rf"--{_NAME}{_WORD}{_NAME}\s+{_VALUE}",
        r"(?i:\bauthorization\b)[\"']?\s*[=:]\s*(?P<value>.+)",
        r"(?i:\bbearer)\s+(?P<value>[\w.~+/=-]{8,})",
        r"://[^\s/:@]{0,80}:(?P<value>[^\s/]+)@",
        r"://(?P<value>[^\s/:@]{20,})@",
    )
    return tuple(map(re.compile, sources))


def is_secret(name: str) -> bool:
    """Return whether a variable of that name holds a secret."""
    return may_hide(name) and re.search(_WORD, name) is not None


def mask_secrets(text: str) -> str:
    """Return the text with ``***`` instead of each secret in it; what is masked already stays as it is."""
    if not may_hide(text):
        return text
    for pattern in _patterns():
        text = pattern.sub(_mask_match, text)
    return text


def mask_value(name: str, value: str) -> str:
    """Return the value of a variable, hidden when its name says that it is a secret."""
    return MASK if value and is_secret(name) else mask_secrets(value)


def find_secrets(text: str) -> list[str]:
    """Return the secrets that :func:`mask_secrets` hides, the longest first."""
    if mask_secrets(text) == text:
        return []
    values = {match["value"].strip("\"'") for pattern in _patterns() for match in pattern.finditer(text)}
    return sorted(values - {"", MASK}, key=len, reverse=True)


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
    lowered = text.lower()
    return any(map(lowered.__contains__, _HINTS))


def _mask_match(match: re.Match[str]) -> str:
    start, end = match.span("value")
    before, value, after = match.string[match.start() : start], match["value"], match.string[end : match.end()]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{before}{quote}{MASK}{quote}{after}"
