"""The report on a store as a document: plain lists, dictionaries, texts and numbers, which each format prints.

What occurs in jobs (hosts, NICs, GPUs, images, releases, settings) is compared by Fisher's exact test, and with the
jobs of like size and day; the probabilities are corrected for the number of comparisons (Holm). The one with the least
probability is a suspect. Then its jobs are set aside and the rest is compared again, so that nothing is suspected for
the company that it kept. Of a host, a NIC or GPU is suspected in its place if the jobs without it are sound. The
queries and the statistics are in ``queries.sql``.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from nccl_inspect.extras.fleet.store import Store

SCHEMA = "nccl-inspect-fleet/1"
_SQL = Path(__file__).with_name("queries.sql").read_text()
_QUERIES = dict(re.findall(r"^-- name: (\w+)\n(.*?)(?=\n-- name|\Z)", _SQL, re.M | re.S))
_MOST = 40  # suspects, after which nothing more is looked for


def make_report(store: Store, since: timedelta | None = None, by: str = "") -> dict[str, Any]:
    """Return the document."""

    def document() -> dict[str, Any]:
        rows = partial(ask, store.connect(since))
        rows("statistics")
        rows("uses")
        (total,) = rows("totals")
        compared, suspects = list_suspects(rows)
        hosts = [suspect["host"] for suspect in suspects if suspect["host"]]
        names = [suspect["name"] for suspect in suspects if suspect["kind"] == by]
        return {
            **{"schema": SCHEMA, "since": since.days if since else None, **total, "compared": compared},
            **{"days": rows("days"), "suspects": suspects, "causes": rows("causes"), "new": rows("new")},
            "changes": rows("changes", {"hosts": hosts}),
            "by": {"kind": by, "rows": rows("by", {"kind": by, "suspects": names})} if by else None,
        }

    return store.retry(document)


def ask(connection: Any, query: str, values: dict[str, Any] | None = None, **tables: str) -> list[dict[str, Any]]:
    """Return the rows of a query that is named, with times as text; ``tables`` are the names in its braces."""
    done = connection.execute(_QUERIES[query].format(**tables), values)
    columns = [column[0] for column in done.description or ()]
    return [dict(zip(columns, map(_simplify, row), strict=True)) for row in done.fetchall()]


def _simplify(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _simplify(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_simplify(part) for part in value]
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    return str(value) if isinstance(value, date) else value


def list_suspects(rows: Any) -> tuple[int, list[dict[str, Any]]]:
    """Return how many things were compared, and the suspects as they were found, the surest first."""
    rows("compared")
    rows("pairs")
    (compared,) = rows("comparisons")
    found: list[tuple[dict[str, Any], list[str]]] = []
    cleared: list[list[dict[str, Any]]] = []
    while len(found) < _MOST:
        comparisons = compared["number"] - len(found)
        rows("counts", pairs="pairs", things="things")
        guilty = rows("guilty", {"comparisons": comparisons})
        still = {one["thing"] for one in guilty}
        cleared = [[one for one in some if one["thing"] not in still] for some in cleared]
        if not guilty:
            break
        suspect, *others = guilty
        alike = [one for one in others if one["rated"] == suspect["rated"]]
        cleared.append([one for one in others if one not in alike])
        pairs = "pairs"
        if suspect["kind"] == "host":
            rows("parts", {"host": suspect["host"]})
            rows("counts", pairs="parts", things="parts")
            values = {name: suspect[name] for name in ("jobs", "bad", "expected")}
            if part := rows("part", values | {"comparisons": comparisons}):
                suspect, pairs = part[0], "parts"
        rows("mine", {"thing": suspect["thing"]}, pairs=pairs)
        together = rows("together", {"things": [one["thing"] for one in alike]})
        found.append((suspect, [one["name"] for one in together]))
        rows("set_aside")
    suspects = []
    for (suspect, company), others in zip(found, cleared, strict=True):  # with the rules and evidence of its bad jobs
        rows("own", {name: suspect[name] for name in ("kind", "name")})
        (own,) = rows("own_totals", {name: suspect[name] for name in ("bad", "jobs", "expected", "ratio", "chance")})
        named = {name: suspect[name] for name in ("kind", "name", "host", "named")}
        freed = [{"kind": one["kind"], "name": one["name"], **one["rated"]} for one in others]
        proofs = {"rules": rows("own_rules"), "evidence": rows("own_proofs")}
        suspects.append({**named, **own, **proofs, "together": company, "cleared": freed})
    return compared["number"], suspects
