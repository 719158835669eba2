"""The report on a store as a document: plain lists, dictionaries, texts and numbers, which each format prints."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta
from typing import Any

from nccl_inspect.extras.fleet.store import Store
from nccl_inspect.extras.fleet.suspects import ALPHA, PARTS, PER_JOB, Comparison, Logs, Suspect, wilson

SCHEMA = "nccl-inspect-fleet/1"
VERDICTS = ("ok", "unknown", "degraded", "failed")
BY = (*PER_JOB, *PARTS)
"""What jobs can be listed by."""
NEW = timedelta(days=7)
"""How long something counts as new, and before a change jobs are compared with those after it."""
_MOST_CAUSES, _MOST_NEW, _MOST_PROOFS, _MOST_ROWS = 12, 20, 3, 200
_LEAST_AFTER = 10
"""Jobs after a change from which on it is compared with what was before."""
_NEW = {
    "cause": "SELECT rule AS name, job, bad, start FROM job WHERE bad AND rule IS NOT NULL",
    "image": "SELECT image AS name, job, bad, start FROM job WHERE image IS NOT NULL",
    "release": "SELECT release AS name, job, bad, start FROM job WHERE release IS NOT NULL",
    "setting": "SELECT name || '=' || value AS name, job, bad, start FROM setting WHERE value IS NOT NULL",
    "host": "SELECT host AS name, job, bad, start FROM host",
}


def report(store: Store, since: timedelta | None = None, by: str = "") -> dict[str, Any]:
    """The document.

    Args:
        store: with the jobs.
        since: how far before the newest day jobs count; None for all.
        by: what to list all of, one of :data:`BY`.
    """
    return store.retried(lambda: _Report(store, since).document(by))


class _Report:
    def __init__(self, store: Store, since: timedelta | None) -> None:
        self._connection = store.connection(since)
        self._whole = store.connection() if since else self._connection
        self._since = since

    def document(self, by: str) -> dict[str, Any]:
        first, last, jobs, bad = self._rows("SELECT min(start) first, max(start) AS last, count(*) jobs, "
                                            "count_if(bad) bad FROM job")[0].values()  # fmt: skip
        counted = {
            row["verdict"]: row["jobs"] for row in self._rows("SELECT verdict, count(*) jobs FROM job GROUP BY 1")
        }
        (hosts,) = self._rows("SELECT count(DISTINCT host) hosts FROM host")[0].values()
        comparison = Comparison(self._connection) if jobs else None
        suspects = comparison.suspects() if comparison else []
        return {
            "schema": SCHEMA,
            "since": None if self._since is None else self._since.days,
            "first": _text(first),
            "last": _text(last),
            **{"jobs": jobs, "hosts": hosts, "verdicts": {name: counted.get(name, 0) for name in VERDICTS}},
            "bad": _rate(bad, jobs),
            "compared": comparison.compared if comparison else 0,
            "days": self._days(),
            "suspects": [self._suspect(suspect, jobs, bad) for suspect in suspects],
            "causes": self._causes(jobs),
            "new": self._new() if jobs else [],
            "changes": self._changes(suspects) if jobs else [],
            "by": {"kind": by, "rows": self._by(by, suspects)} if by else None,
        }

    def _rows(self, sql: str, values: Any = (), whole: bool = False) -> list[dict[str, Any]]:
        done = (self._whole if whole else self._connection).execute(sql, values)
        names = [column[0] for column in done.description]
        return [dict(zip(names, row, strict=True)) for row in done.fetchall()]

    def _days(self) -> list[dict[str, Any]]:
        counted = ", ".join(f"count_if(verdict = '{name}') AS {name}" for name in VERDICTS)
        rows = self._rows(f"SELECT start::DATE AS day, count(*) jobs, count_if(bad) bad, {counted} "
                          "FROM job GROUP BY 1 ORDER BY 1")  # fmt: skip
        return [row | {"day": _text(row["day"])} | _rate(row["bad"], row["jobs"]) for row in rows]

    def _suspect(self, suspect: Suspect, jobs: int, bad: int) -> dict[str, Any]:
        count = suspect.count
        sql = (PER_JOB | PARTS)[count.kind]
        self._rows(
            "CREATE OR REPLACE TEMP TABLE own AS SELECT j.*, named FROM job j JOIN (SELECT job, "
            f"bool_or(named) AS named FROM ({sql}) WHERE name = ? GROUP BY job) USING (job)",
            [count.name],
        )
        total, total_bad, first, last = self._rows(
            "SELECT count(*) jobs, count_if(bad) bad, min(start) FILTER (bad) AS first, "
            "max(start) FILTER (bad) AS last FROM own"
        )[0].values()
        rules = self._rows("SELECT rule, count(*) jobs FROM own WHERE bad AND rule IS NOT NULL "
                           "GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3")  # fmt: skip
        proofs = self._rows(
            "SELECT job, name, start, verdict, rule, summary, source, line, text FROM own WHERE bad "
            f"ORDER BY named DESC, start DESC LIMIT {_MOST_PROOFS}"
        )
        return {
            **{"kind": count.kind, "name": count.name, "host": suspect.host},
            **_rate(count.bad, count.jobs),
            "expected": round(count.expected, 1),
            "others": round((bad - total_bad) / max(jobs - total, 1), 4),
            "ratio": round(count.ratio, 2),
            "chance": _chance(suspect.adjusted),
            "named": suspect.named,
            **{"first": _text(first), "last": _text(last), "rules": rules},
            "together": suspect.together,
            "cleared": [{"kind": one.kind, "name": one.name, **_rate(one.bad, one.jobs)} for one in suspect.cleared],
            "evidence": [row | {"start": _text(row["start"])} for row in proofs],
        }

    def _causes(self, jobs: int) -> list[dict[str, Any]]:
        rows = self._rows(
            "SELECT coalesce(rule, 'none') AS rule, any_value(category) AS category, count(*) AS bad, "
            f"min(start) AS first, max(start) AS last FROM job WHERE bad GROUP BY 1 ORDER BY 3 DESC, 1 LIMIT {_MOST_CAUSES}"
        )
        by_day = self._rows("SELECT coalesce(rule, 'none') AS rule, start::DATE AS day, count(*) AS bad FROM job "
                            "WHERE bad GROUP BY ALL ORDER BY 1, 2")  # fmt: skip
        return [
            {
                **{"rule": row["rule"], "category": row["category"], **_rate(row["bad"], jobs)},
                **{"first": _text(row["first"]), "last": _text(row["last"])},
                "days": [{"day": _text(one["day"]), "bad": one["bad"]} for one in by_day if one["rule"] == row["rule"]],
            }
            for row in rows
        ]

    def _new(self) -> list[dict[str, Any]]:
        """Return what occurs in the last week only, in a store that is older than that."""
        first, last = self._rows("SELECT min(start) a, max(start) b FROM job", whole=True)[0].values()
        if last - first < NEW:
            return []
        found = []
        for kind, sql in _NEW.items():
            rows = self._rows(
                "SELECT name, min(start) AS first, count(DISTINCT job) AS jobs, "
                f"count(DISTINCT job) FILTER (bad) AS bad FROM ({sql}) GROUP BY 1 HAVING min(start) > ? ORDER BY bad DESC, jobs DESC, 1 "
                f"LIMIT {_MOST_NEW}",
                [last - NEW],
                whole=True,
            )
            found += [
                {"kind": kind, "name": row["name"], "first": _text(row["first"]), **_rate(row["bad"], row["jobs"])}
                for row in rows
            ]
        return found

    def _changes(self, suspects: list[Suspect]) -> list[dict[str, Any]]:
        """Images and releases with which jobs are worse than with those that were in use the week before.

        Jobs on hosts that are suspects are left out.
        """
        hosts = [suspect.host for suspect in suspects if suspect.host]
        self._whole.execute(
            "CREATE OR REPLACE TEMP TABLE others AS SELECT job, bad, start, image, release, rule FROM job "
            "WHERE job NOT IN (SELECT job FROM host WHERE list_contains(?, host))",
            [hosts],
        )
        begin, size = self._rows("SELECT min(start) AS begin, count(*) AS size FROM others", whole=True)[0].values()
        logs, found, compared = Logs(size), [], 0
        for kind in ("image", "release"):
            values = self._rows(
                f"SELECT {kind} AS name, min(start) AS first, count(*) AS jobs, count_if(bad) AS bad, "
                f"mode(rule) FILTER (bad) AS rule FROM others WHERE {kind} IS NOT NULL GROUP BY 1 "
                "HAVING min(start) > ? AND count(*) >= ?",
                [begin + timedelta(days=1), _LEAST_AFTER] if begin else [datetime.max, 0],
                whole=True,
            )
            for row in values:
                before = self._rows(
                    f"SELECT mode({kind}) AS name, count(*) AS jobs, count_if(bad) AS bad FROM others "
                    f"WHERE {kind} <> ? AND start BETWEEN ? AND ?",
                    [row["name"], row["first"] - NEW, row["first"]],
                    whole=True,
                )[0]
                compared += 1
                chance = logs.fisher(row["bad"], row["jobs"], row["bad"] + before["bad"], row["jobs"] + before["jobs"])
                if before["jobs"] and row["bad"] / row["jobs"] > before["bad"] / before["jobs"]:
                    found.append((chance, kind, row, before))
        found.sort(key=lambda entry: entry[0])
        return [
            {
                **{"kind": kind, "name": row["name"], "since": _text(row["first"]), "rule": row["rule"]},
                **_rate(row["bad"], row["jobs"]),
                "before": {"name": before["name"], **_rate(before["bad"], before["jobs"])},
                "chance": _chance(math.exp(chance) * (compared - place)),
            }
            for place, (chance, kind, row, before) in enumerate(found)
            if math.exp(chance) * (compared - place) < ALPHA
        ]

    def _by(self, kind: str, suspects: list[Suspect]) -> list[dict[str, Any]]:
        names = {suspect.count.name for suspect in suspects if suspect.count.kind == kind}
        rows = self._rows(
            "SELECT p.name, count(*) AS jobs, count_if(bad) AS bad, count_if(bad AND named) AS named, "
            "min(start) AS first, max(start) AS last FROM job JOIN (SELECT job, name, bool_or(named) AS named "
            f"FROM ({(PER_JOB | PARTS)[kind]}) GROUP BY ALL) p USING (job) GROUP BY p.name"
        )
        table = [
            {
                **{"name": row["name"], **_rate(row["bad"], row["jobs"]), "named": row["named"]},
                **{"first": _text(row["first"]), "last": _text(row["last"]), "suspect": row["name"] in names},
            }
            for row in rows
        ]
        table.sort(key=lambda row: (not row["suspect"], -row["low"], row["name"]))
        return table[:_MOST_ROWS]


def drained(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The suspects that are a host or a part of one."""
    return [suspect for suspect in document["suspects"] if suspect["host"]]


def _rate(bad: int, jobs: int) -> dict[str, Any]:
    low, high = wilson(bad, jobs)
    rate = round(bad / jobs, 4) if jobs else 0.0
    return {"bad": bad, "jobs": jobs, "rate": rate, "low": round(low, 4), "high": round(high, 4)}


def _chance(probability: float) -> float:
    return float(f"{min(1.0, probability):.2g}")


def _text(value: datetime | date | None) -> str | None:
    return value.isoformat(timespec="seconds") if isinstance(value, datetime) else str(value) if value else None
