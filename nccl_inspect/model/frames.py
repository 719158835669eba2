"""The lists of the JSON document as pandas tables: for notebooks, and loaded only there."""

from __future__ import annotations

from typing import Any

import pandas as pd

from nccl_inspect.model.document import entries, schema, to_dict
from nccl_inspect.model.job import Job, Selection

NAMES = ("paths", "findings", "communicators", "environment", "hosts", "sources", "not_judged")
"""The lists that are tables."""


def frame(job: Job, what: str) -> pd.DataFrame:
    """Return one list of the document; an empty one has its columns, too.

    Raises:
        ValueError: the document has no such list.
    """
    if what not in NAMES:
        raise ValueError(f"no table '{what}': there are {', '.join(NAMES)}")
    document = to_dict(job)
    return pd.DataFrame(document[what] if what in document else document["job"][what], columns=_columns(what))


def path_frame(paths: Selection) -> pd.DataFrame:
    """Paths with the columns of the document."""
    return pd.DataFrame(entries(paths), columns=_columns("paths"))


def _columns(what: str) -> list[str]:
    """Return the columns of a list, as the JSON Schema of the document has them."""
    whole = schema()
    document = whole["properties"]
    lists = {**_resolve_reference(whole, document["job"])["properties"], **document}
    return list(_resolve_reference(whole, lists[what]["items"])["properties"])


def _resolve_reference(whole: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    schema: Any = part
    while "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    resolved: dict[str, Any] = schema
    return resolved
