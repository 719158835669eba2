"""The report on a store as a document: plain lists, dictionaries, texts and numbers, which each format prints."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta
from typing import Any

from nccl_inspect.extras.fleet.queries import ask
from nccl_inspect.extras.fleet.store import Store
from nccl_inspect.extras.fleet.suspects import ALPHA, Comparison, Suspect, fisher, wilson

SCHEMA = "nccl-inspect-fleet/1"
VERDICTS = ("ok", "unknown", "degraded", "failed")
_MOST_ROWS = 200


def make_report(store: Store, since: timedelta | None = None, by: str = "") -> dict[str, Any]:
    """Return the document.

    Args:
        store: what it is about.
        since: how many days before the newest job count.
        by: also a table of all things of this kind.
    """
    return store.retried(lambda: _Report(store.connect(since), since).document(by))


class _Report:
    def __init__(self, connection: Any, since: timedelta | None) -> None:
        self._connection, self._since = connection, since

    def document(self, by: str) -> dict[str, Any]:
        (total,) = self._rows("totals")
        (whole,) = self._rows("whole_totals")
        jobs, bad = total["jobs"], total["bad"]
        counted = {row["verdict"]: row["jobs"] for row in self._rows("verdicts")}
        self._rows("uses")
        comparison = Comparison(self._connection)
        suspects = comparison.list_suspects()
        cause_days = self._rows("cause_days")
        undated = whole["undated"] - total["undated"]
        return {
            **{"schema": SCHEMA, "since": self._since.days if self._since else None},
            **{name: total[name] for name in ("first", "last", "jobs", "undated", "hosts")},
            "left_out": {"older": whole["jobs"] - jobs - undated, "undated": undated},
            **{"verdicts": {name: counted.get(name, 0) for name in VERDICTS}, "bad": _rate(bad, jobs)},
            "compared": comparison.compared,
            "days": [row | _rate(**row) for row in self._rows("days")],
            "suspects": [self._suspect(suspect, jobs, bad) for suspect in suspects],
            "causes": [
                row | _rate(row["bad"], jobs)
                | {"days": [{"day": one["day"], "bad": one["bad"]} for one in cause_days if one["rule"] == row["rule"]]}
                for row in self._rows("causes")
            ],
            "new": [row | _rate(**row) for row in self._rows("new")],
            "changes": self._changes([suspect.count.host for suspect in suspects if suspect.count.host]),
            "by": {"kind": by, "rows": self._by(by, suspects)} if by else None,
        }  # fmt: skip

    def _rows(self, query: str, values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return the rows of a query, with times as text."""
        rows = ask(self._connection, query, values)
        return [{name: _plain(value) for name, value in row.items()} for row in rows]

    def _suspect(self, suspect: Suspect, jobs: int, bad: int) -> dict[str, Any]:
        count = suspect.count
        self._rows("own", {"kind": count.kind, "name": count.name})
        (own,) = self._rows("own_totals")
        cleared = [{"kind": one.kind, "name": one.name, **_rate(one.bad, one.jobs)} for one in suspect.cleared]
        return {
            **{"kind": count.kind, "name": count.name, "host": count.host, **_rate(count.bad, count.jobs)},
            **{"expected": round(count.expected, 1), "ratio": round(count.ratio, 2)},
            "others": round((bad - own["bad"]) / max(jobs - own["jobs"], 1), 4),
            **{"chance": _chance(suspect.adjusted), "named": count.named, "first": own["first"], "last": own["last"]},
            **{"rules": self._rows("own_rules"), "together": suspect.together, "cleared": cleared},
            "evidence": self._rows("own_proofs"),
        }

    def _changes(self, hosts: list[str]) -> list[dict[str, Any]]:
        """Return images and releases with which jobs are worse than with those in use the week before.

        Args:
            hosts: whose jobs are left out, as they are suspects.
        """
        tested = []
        for row in self._rows("changes", {"hosts": hosts}):
            bad, jobs, bad_before, jobs_before = (row[name] for name in ("bad", "jobs", "bad_before", "jobs_before"))
            before = {"name": row["name_before"], **_rate(bad_before, jobs_before)}
            change = {"kind": row["kind"], "name": row["name"], "since": row["first"], "rule": row["rule"]}
            chance = math.exp(fisher(bad, jobs, bad + bad_before, jobs + jobs_before))
            tested.append((chance, change | _rate(bad, jobs) | {"before": before}))
        tested.sort(key=lambda one: one[0])
        adjusted = [(chance * (len(tested) - place), change) for place, (chance, change) in enumerate(tested)]
        return [change | {"chance": _chance(chance)} for chance, change in adjusted if chance < ALPHA]

    def _by(self, kind: str, suspects: list[Suspect]) -> list[dict[str, Any]]:
        names = {suspect.count.name for suspect in suspects if suspect.count.kind == kind}
        rows = self._rows("by", {"kind": kind})
        table = [row | _rate(**row) | {"suspect": row["name"] in names} for row in rows]
        return sorted(table, key=lambda row: (not row["suspect"], -row["low"], row["name"]))[:_MOST_ROWS]


def _rate(bad: int, jobs: int, **_: object) -> dict[str, Any]:
    low, high = wilson(bad, jobs)
    rate = round(bad / jobs, 4) if jobs else 0.0
    return {"bad": bad, "jobs": jobs, "rate": rate, "low": round(low, 4), "high": round(high, 4)}


def _chance(probability: float) -> float:
    return float(f"{min(1.0, probability):.2g}")


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    return str(value) if isinstance(value, date) else value
