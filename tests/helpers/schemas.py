"""The JSON schemas of the package, and validators that are stricter than they are."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator


def schema(name: str) -> dict[str, Any]:
    text = files("nccl_inspect").joinpath(f"schema/{name}.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield all object schemas in a schema."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for value in schema.values():
            yield from objects(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from objects(value)


def close_schema(name: str) -> Draft202012Validator:
    """Return a validator that also refuses keys which the schema does not name, so that the two stay in step."""
    strict = copy.deepcopy(schema(name))
    for part in objects(strict):
        part["additionalProperties"] = False
    return Draft202012Validator(strict)
