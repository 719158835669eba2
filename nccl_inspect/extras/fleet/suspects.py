"""What the bad jobs of a store share and the others lack: hosts, NICs, GPUs, images, releases, settings.

Whatever occurs in jobs is compared by Fisher's exact test, and with the jobs of like size and time; the probabilities
are corrected for the number of comparisons (Holm). The one with the least probability is a suspect. Then its jobs are
set aside and the rest is compared again, so that nothing is suspected for the company that it kept. Of a host, a NIC or
GPU is suspected in its place if the jobs without it are sound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from nccl_inspect.util.records import Frozen, Record, frozen, record

ALPHA = 0.01
"""The probability, after correction, below which somebody is suspected."""
_LEAST_BAD = 3
"""Bad jobs below which nobody is suspected."""
_LEAST_RATIO = 1.5
"""How many times as often jobs must be bad with a suspect as without it: among very many jobs, little is significant."""
_LEAST_IN_STRATUM = 50
"""Jobs of like size and day that there must be on average, for them to be compared with each other only."""
_MOST = 40
"""Suspects, after which nothing more is looked for."""
_Z = 1.959964
KINDS = ("image", "release", "setting", "host")
"""What is compared, the coarser before the finer: of those that occur in the same jobs, the first is suspected."""
_PER_JOB = {
    "image": "SELECT job, image AS name FROM job WHERE image IS NOT NULL",
    "release": "SELECT job, release AS name FROM job WHERE release IS NOT NULL",
    "setting": "SELECT DISTINCT job, name || '=' || value AS name FROM setting WHERE value IS NOT NULL",
    "host": "SELECT job, host AS name FROM host",
}
PARTS = {
    "nic": "SELECT job, host || ' ' || nic AS name, host, named FROM nic WHERE paths_out + paths_in > 0",
    "gpu": "SELECT job, host || ' GPU ' || gpu AS name, host, named FROM rank WHERE gpu IS NOT NULL",
}
"""Of each kind, one row for each job in which it was used."""


def wilson(bad: int, of: int) -> tuple[float, float]:
    """The interval in which a rate lies with a probability of 95 %."""
    if not of:
        return 0.0, 1.0
    rate, square = bad / of, _Z * _Z / of
    middle = (rate + square / 2) / (1 + square)
    half = _Z * math.sqrt(rate * (1 - rate) / of + square / of / 4) / (1 + square)
    return max(0.0, middle - half), min(1.0, middle + half)


class Logs:
    """Logarithms of factorials, and of the probabilities that are made of them.

    Args:
        most: the largest number.
    """

    def __init__(self, most: int) -> None:
        self._factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, most + 2)))])

    def _choose(self, of: Any, some: Any) -> Any:
        table = self._factorials
        return table[of] - table[some] - table[of - some]

    def fisher(self, bad: int, of: int, all_bad: int, everything: int) -> float:
        """The probability of as many bad ones among some of them, or more, if which ones are bad were chance."""
        seen = np.arange(bad, min(of, all_bad) + 1)
        seen = seen[of - seen <= everything - all_bad]
        if bad <= 0 or not len(seen):
            return 0.0
        return _sum(self._choose(all_bad, seen) + self._choose(everything - all_bad, of - seen)) - float(
            self._choose(everything, of)
        )

    def binomial(self, bad: int, of: int, rate: float) -> float:
        """The probability of as many bad ones, or more, if each is bad with some probability."""
        if bad <= 0 or rate >= 1:
            return 0.0
        if rate <= 0:
            return -math.inf
        seen = np.arange(bad, of + 1)
        return _sum(self._choose(of, seen) + seen * math.log(rate) + (of - seen) * math.log1p(-rate))


def _sum(logs: Any) -> float:
    """The logarithm of a sum, of at most 1."""
    most = float(logs.max())
    return min(0.0, most + math.log(float(np.exp(logs - most).sum())))


@frozen
class Count(Frozen):
    """Holds how often jobs with something were bad."""

    kind: str
    name: str
    bad: int
    jobs: int
    expected: float
    """Bad ones among as many jobs of like size and time without it."""
    chance: float
    """The logarithm of the probability of so many if that were all."""

    @property
    def ratio(self) -> float:
        """How many times as many as expected."""
        return self.bad / max(self.expected, 0.5)


@record
class Suspect(Record):
    """Something with which jobs are bad more often than without it."""

    count: Count
    adjusted: float
    """The probability of that by chance, corrected for the number of comparisons."""
    host: str | None = None
    """The host that it is or is in."""
    named: int = 0
    """Bad jobs in which findings name it."""
    together: list[str] = None  # type: ignore[assignment]
    """Others that were in exactly the same jobs."""
    cleared: list[Count] = None  # type: ignore[assignment]
    """Those that looked bad until its jobs were set aside."""


class _Kind(NamedTuple):
    """Which jobs have what: a row for each pair."""

    names: list[str]
    jobs: Any
    """The number of the job."""
    what: Any
    """The place among the names."""


class Comparison:
    """Compares the jobs of a store.

    Args:
        connection: with a view for each table.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE numbered AS SELECT job, bad, start, hosts, "
            "CAST(row_number() OVER () - 1 AS INTEGER) AS number FROM job"
        )
        columns = connection.execute(
            "SELECT bad, CAST(epoch(start) // 86400 AS INTEGER) AS day, "
            "CAST(ceil(log2(greatest(coalesce(hosts, 1), 1))) AS INTEGER) AS size FROM numbered ORDER BY number"
        ).fetchnumpy()
        self._bad = np.asarray(columns["bad"], bool)
        self._strata = _strata(np.asarray(columns["size"]), np.asarray(columns["day"]))
        self._logs = Logs(len(self._bad))
        self._kinds = {kind: self._pairs(_PER_JOB[kind]) for kind in KINDS}
        parts = sum(self._number(f"SELECT DISTINCT name FROM ({sql})") for sql in PARTS.values())  # noqa: S608 - ours
        self.compared = sum(len(kind.names) for kind in self._kinds.values()) + parts

    def _number(self, sql: str) -> int:
        return int(self._connection.execute(f"SELECT count(*) FROM ({sql})").fetchone()[0])  # noqa: S608 - ours

    def _pairs(self, sql: str, values: Sequence[object] = ()) -> _Kind:
        run = self._connection.execute
        run(f"CREATE OR REPLACE TEMP TABLE pairs AS {sql}", values)
        run("CREATE OR REPLACE TEMP TABLE names AS SELECT name, CAST(row_number() OVER (ORDER BY name) - 1 AS INTEGER) "
            "AS place FROM (SELECT DISTINCT name FROM pairs)")  # fmt: skip
        names = [name for (name,) in run("SELECT name FROM names ORDER BY place").fetchall()]
        columns = run("SELECT number, place FROM pairs JOIN names USING (name) JOIN numbered USING (job)").fetchnumpy()
        return _Kind(names, np.asarray(columns["number"], np.int32), np.asarray(columns["place"], np.int32))

    def counts(self, kind: str, pairs: _Kind, left: Any) -> list[Count]:
        """Return how often jobs were bad with each thing of a kind; those with too few bad ones are left out.

        Args:
            kind: its name.
            pairs: which jobs have what.
            left: whether each job is compared at all.
        """
        kept = left[pairs.jobs]
        jobs, what = pairs.jobs[kept], pairs.what[kept]
        number = len(pairs.names)
        own = np.bincount(what, minlength=number)
        bad = np.bincount(what[self._bad[jobs]], minlength=number)
        everything, all_bad = int(left.sum()), int((left & self._bad).sum())
        found = []
        # Of most, a look at the rate is enough.
        rest = (all_bad - bad) / np.maximum(everything - own, 1)
        for place in np.flatnonzero((bad >= _LEAST_BAD) & (bad > _LEAST_RATIO * own * rest) & (own < everything)):
            mine = np.zeros(len(left), bool)
            mine[jobs[what == place]] = True
            expected, compared, seen = self._expected(mine, left)
            chance = max(
                self._logs.fisher(int(bad[place]), int(own[place]), all_bad, everything),
                self._logs.binomial(seen, compared, expected / compared) if compared else 0.0,
            )
            expected *= float(own[place]) / max(compared, 1)
            found.append(Count(kind, pairs.names[place], int(bad[place]), int(own[place]), expected, chance))
        return found

    def _expected(self, mine: Any, left: Any) -> tuple[float, int, int]:
        """Bad ones expected by the rate of other jobs of like size and time, of how many jobs, and bad ones of these."""
        strata = int(self._strata.max(initial=0)) + 1

        def counted(which: Any) -> Any:
            return np.bincount(self._strata[which], minlength=strata)

        others, own = left & ~mine, left & mine
        there = counted(others)
        rate = counted(others & self._bad) / np.maximum(there, 1)
        mine_there = counted(own) * (there > 0)
        return float((mine_there * rate).sum()), int(mine_there.sum()), int((counted(own & self._bad) * (there > 0)).sum())

    def suspects(self) -> list[Suspect]:
        """The suspects, in the order in which they were found: the surest first."""
        left = np.ones(len(self._bad), bool)
        found: list[Suspect] = []
        while len(found) < _MOST and (self._bad & left).any():
            counts = [count for kind in KINDS for count in self.counts(kind, self._kinds[kind], left)]
            limit = math.log(ALPHA / max(self.compared - len(found), 1))
            guilty = [count for count in counts if count.chance <= limit and count.ratio >= _LEAST_RATIO]
            _clear(found, guilty, counts)
            if not guilty:
                break
            best = min(guilty, key=lambda count: (count.chance, KINDS.index(count.kind)))
            suspect = self._localized(best, left) if best.kind == "host" else Suspect(best, 0.0)
            suspect.adjusted = min(1.0, math.exp(suspect.count.chance) * (self.compared - len(found)))
            mine = self._jobs_of(suspect)
            suspect.together = [
                f"{count.kind} {count.name}"
                for count in guilty
                if count != best and (count.bad, count.jobs) == (best.bad, best.jobs) and self._same(count, mine & left)
            ][:20]
            suspect.cleared = [count for count in guilty if count not in (best, suspect.count)]
            found.append(suspect)
            left &= ~mine
        return found

    def _jobs_of(self, suspect: Suspect) -> Any:
        count = suspect.count
        mine = np.zeros(len(self._bad), bool)
        if count.kind in PARTS:
            sql = f"SELECT job, name FROM ({PARTS[count.kind]}) WHERE host = ? AND name = ?"  # noqa: S608 - ours
            mine[self._pairs(sql, [suspect.host, count.name]).jobs] = True
        else:
            pairs = self._kinds[count.kind]
            mine[pairs.jobs[pairs.what == pairs.names.index(count.name)]] = True
        return mine

    def _same(self, count: Count, mine: Any) -> bool:
        return bool((self._jobs_of(Suspect(count, 0.0)) >= mine).all())

    def _localized(self, host: Count, left: Any) -> Suspect:
        """The suspect in a host: a NIC or GPU, if jobs that do not use it are sound or findings name it; or the host."""
        run = self._connection.execute
        best = Suspect(host, 0.0, host.name, self._named("SELECT job, host AS name, named FROM host", host.name, left))
        for kind, sql in PARTS.items():
            pairs = self._pairs(f"SELECT DISTINCT job, name FROM ({sql}) WHERE host = ?", [host.name])  # noqa: S608 - ours
            for count in self.counts(kind, pairs, left):
                named = self._named(sql, count.name, left)
                others = host.jobs - count.jobs
                is_sound = others >= _LEAST_BAD and host.bad - count.bad <= _LEAST_RATIO * max(
                    1.0, host.expected * others / host.jobs
                )
                is_worse = count.chance < best.count.chance or best.count.kind == "host"
                if (is_sound and is_worse) or (2 * named > count.bad and named > best.named * 0.9 and count.bad >= 0.9 * host.bad
                                               and (best.count.kind == "host" or named > best.named)):  # fmt: skip
                    best = Suspect(count, 0.0, host.name, named)
        del run
        return best

    def _named(self, sql: str, name: str, left: Any) -> int:
        """The number of bad jobs in which findings name something."""
        jobs = self._pairs(f"SELECT DISTINCT job, name FROM ({sql}) WHERE name = ? AND named", [name]).jobs  # noqa: S608 - ours
        return int((self._bad & left)[jobs].sum())


def _strata(*columns: Any) -> Any:
    """Numbers for jobs that are alike in as many columns as the number of jobs allows."""
    strata = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        _, finer = np.unique(np.stack([strata, column]), axis=1, return_inverse=True)
        finer = finer.reshape(-1)
        if len(finer) and len(finer) / (finer.max() + 1) >= _LEAST_IN_STRATUM:
            strata = finer
    return strata


def _clear(found: Iterable[Suspect], guilty: Sequence[Count], counts: Sequence[Count]) -> None:
    """Keep, of what looked bad before a suspect was set aside, only what does not any more."""
    still = {(count.kind, count.name) for count in guilty}
    for suspect in found:
        suspect.cleared = [count for count in suspect.cleared if (count.kind, count.name) not in still]
    del counts
