"""The questions of a report to the tables of a store, which ``queries.sql`` holds by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_QUERIES = dict(
    re.findall(
        r"^-- name: (\w+)\n(.*?)(?=\n-- name|\Z)", Path(__file__).with_name("queries.sql").read_text(), re.M | re.S
    )
)


def ask(connection: Any, query: str, values: dict[str, Any] | None = None, **tables: str) -> list[dict[str, Any]]:
    """Return the rows of a query.

    Args:
        connection: with the tables.
        query: its name.
        values: its parameters.
        tables: the names in braces.
    """
    done = connection.execute(_QUERIES[query].format(**tables), values)
    columns = [column[0] for column in done.description or ()]
    return [dict(zip(columns, row, strict=True)) for row in done.fetchall()]
