"""Kubernetes manifests with their secrets removed."""

from __future__ import annotations

import json
from typing import Any

from nccl_inspect.util import secrets

_REPEATED = "last-applied-configuration"
"""The annotation that holds the whole manifest once more, as text."""


def masked(data: bytes) -> bytes:
    """A manifest in JSON without values of variables that are named like a secret, indented.

    Args:
        data: as ``kubectl get --output=json`` prints it.

    Raises:
        ValueError: it is not JSON.
    """
    return (json.dumps(_masked(json.loads(data)), indent=2) + "\n").encode()


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        if isinstance(value.get("name"), str) and isinstance(value.get("value"), str):
            value = {**value, "value": secrets.value_of(value["name"], value["value"])}
        return {key: _of_key(key, entry) for key, entry in value.items() if not key.endswith(_REPEATED)}
    if isinstance(value, list):
        return _arguments(value) if all(isinstance(entry, str) for entry in value) else list(map(_masked, value))
    return secrets.masked(value) if isinstance(value, str) else value


def _of_key(key: str, value: Any) -> Any:
    """The value of a key; a reference to a secret names it and does not hold it."""
    return secrets.value_of(key, value) if isinstance(value, str) and not key.endswith("Name") else _masked(value)


def _arguments(words: list[str]) -> list[str]:
    """The words of a command: a secret may be the word after the option that names it."""
    shown = [secrets.masked(word) for word in words]
    for place, word in enumerate(words[:-1]):
        if word.startswith("-") and "=" not in word and secrets.is_secret(word):
            shown[place + 1] = secrets.MASK
    return shown
