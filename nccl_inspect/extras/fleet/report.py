"""The report on a store as a document: plain lists, dictionaries, texts and numbers, which each format prints."""

from __future__ import annotations

import math
import re
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

from nccl_inspect.extras.fleet.store import Store
from nccl_inspect.extras.fleet.suspects import ALPHA, PARTS, PER_JOB, Comparison, Logs, Suspect, wilson

SCHEMA = "nccl-inspect-fleet/1"
VERDICTS = ("ok", "unknown", "degraded", "failed")
_QUERIES = dict(
    re.findall(r"^-- name: (\w+)\n(.*?)(?=\n-- |\Z)", Path(__file__).with_name("queries.sql").read_text(), re.M | re.S)
)
_MOST_ROWS = 200


def report(store: Store, since: timedelta | None = None, by: str = "") -> dict[str, Any]:
    """Return the document."""
    return store.retried(lambda: _Report(store, since).document(by))


class _Report:
    def __init__(self, store: Store, since: timedelta | None) -> None:
        self._connection = store.connection(since)
        self._whole = store.connection() if since else self._connection
        self._since = since

    def document(self, by: str) -> dict[str, Any]:
        (total,) = self._rows("totals")
        jobs, bad = total["jobs"], total["bad"]
        counted = {row["verdict"]: row["jobs"] for row in self._rows("verdicts")}
        comparison = Comparison(self._connection) if jobs else None
        suspects = comparison.suspects() if comparison else []
        cause_days = self._rows("cause_days")
        return {
            **{"schema": SCHEMA, "since": self._since.days if self._since else None},
            **{name: total[name] for name in ("first", "last", "jobs", "hosts")},
            **{"verdicts": {name: counted.get(name, 0) for name in VERDICTS}, "bad": _rate(bad, jobs)},
            "compared": comparison.compared if comparison else 0,
            "days": [row | _rate(**row) for row in self._rows("days")],
            "suspects": [self._suspect(suspect, jobs, bad) for suspect in suspects],
            "causes": [
                row | _rate(row["bad"], jobs)
                | {"days": [{"day": one["day"], "bad": one["bad"]} for one in cause_days if one["rule"] == row["rule"]]}
                for row in self._rows("causes")
            ],
            "new": [row | _rate(**row) for row in self._rows("new", whole=True)] if jobs else [],
            "changes": self._changes(suspects) if jobs else [],
            "by": {"kind": by, "rows": self._by(by, suspects)} if by else None,
        }  # fmt: skip

    def _rows(self, query: str, values: Any = (), whole: bool = False, **own: str) -> list[dict[str, Any]]:
        """Return the rows of a query, with times as text."""
        done = (self._whole if whole else self._connection).execute(_QUERIES[query].format(**own), values)
        names = [column[0] for column in done.description]
        return [dict(zip(names, map(_plain, row), strict=True)) for row in done.fetchall()]

    def _suspect(self, suspect: Suspect, jobs: int, bad: int) -> dict[str, Any]:
        count = suspect.count
        self._rows("own", [count.name], pairs=(PER_JOB | PARTS)[count.kind])
        (own,) = self._rows("own_totals")
        cleared = [{"kind": one.kind, "name": one.name, **_rate(one.bad, one.jobs)} for one in suspect.cleared]
        return {
            **{"kind": count.kind, "name": count.name, "host": suspect.host, **_rate(count.bad, count.jobs)},
            **{"expected": round(count.expected, 1), "ratio": round(count.ratio, 2)},
            "others": round((bad - own["bad"]) / max(jobs - own["jobs"], 1), 4),
            **{"chance": _chance(suspect.adjusted), "named": suspect.named, "first": own["first"], "last": own["last"]},
            **{"rules": self._rows("own_rules"), "together": suspect.together, "cleared": cleared},
            "evidence": self._rows("own_proofs"),
        }

    def _changes(self, suspects: list[Suspect]) -> list[dict[str, Any]]:
        """Images and releases with which jobs are worse than with those in use the week before.

        Jobs on hosts that are suspects are left out.
        """
        self._rows("others", [[suspect.host for suspect in suspects if suspect.host]], whole=True)
        (total,) = self._rows("others_size", whole=True)
        logs, found, compared = Logs(total["size"]), [], 0
        for kind in ("image", "release"):
            for row in self._rows("changed", whole=True, kind=kind):
                values = {"name": row["name"], "first": row["first"]}
                (before,) = self._rows("before", values, whole=True, kind=kind)
                if not before["jobs"]:
                    continue  # no job in that week
                compared += 1
                chance = logs.fisher(row["bad"], row["jobs"], row["bad"] + before["bad"], row["jobs"] + before["jobs"])
                if row["bad"] / row["jobs"] > before["bad"] / before["jobs"]:
                    told = {
                        "kind": kind,
                        "name": row["name"],
                        "since": row["first"],
                        "rule": row["rule"],
                        **_rate(**row),
                    }
                    found.append((chance, told | {"before": {"name": before["name"], **_rate(**before)}}))
        chances = [
            (math.exp(chance) * (compared - place), told)
            for place, (chance, told) in enumerate(sorted(found, key=lambda one: one[0]))
        ]
        return [told | {"chance": _chance(chance)} for chance, told in chances if chance < ALPHA]

    def _by(self, kind: str, suspects: list[Suspect]) -> list[dict[str, Any]]:
        names = {suspect.count.name for suspect in suspects if suspect.count.kind == kind}
        rows = self._rows("by", pairs=(PER_JOB | PARTS)[kind])
        table = [row | _rate(**row) | {"suspect": row["name"] in names} for row in rows]
        return sorted(table, key=lambda row: (not row["suspect"], -row["low"], row["name"]))[:_MOST_ROWS]


def _rate(bad: int, jobs: int, **_: object) -> dict[str, Any]:
    low, high = wilson(bad, jobs)
    rate = round(bad / jobs, 4) if jobs else 0.0
    return {"bad": bad, "jobs": jobs, "rate": rate, "low": round(low, 4), "high": round(high, 4)}


def _chance(probability: float) -> float:
    return float(f"{min(1.0, probability):.2g}")


def _plain(value: object) -> object:
    return (
        value.isoformat(timespec="seconds")
        if isinstance(value, datetime)
        else str(value)
        if isinstance(value, date)
        else value
    )
