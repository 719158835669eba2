"""What the bad jobs of a store share and the others lack: hosts, NICs, GPUs, images, releases, settings.

Whatever occurs in jobs is compared by Fisher's exact test, and with the jobs of like size and time; the probabilities
are corrected for the number of comparisons (Holm). The one with the least probability is a suspect. Then its jobs are
set aside and the rest is compared again, so that nothing is suspected for the company that it kept. Of a host, a NIC or
GPU is suspected in its place if the jobs without it are sound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np

from nccl_inspect.util.records import Frozen, Record, frozen, record

ALPHA = 0.01
"""The probability, after correction, below which somebody is suspected."""
_LEAST_BAD = 3
"""Bad jobs below which nobody is suspected."""
_LEAST_RATIO = 1.5
"""How many times as often jobs must be bad with a suspect: among very many jobs, small differences are significant."""
_LEAST_IN_STRATUM = 50
"""Jobs of like size and day that there must be on average, for them to be compared with each other only."""
_WORTHWHILE = math.log(0.05)
"""The probability, before correction, above which nothing is looked at more closely."""
_MOST = 40
"""Suspects, after which nothing more is looked for."""
_Z = 1.959964
KINDS = ("image", "release", "setting", "host")
"""What is compared, the coarser before the finer: of those that occur in the same jobs, the first is suspected."""
PER_JOB = {
    "image": "SELECT job, image AS name, false AS named FROM job WHERE image IS NOT NULL",
    "release": "SELECT job, release AS name, false AS named FROM job WHERE release IS NOT NULL",
    "setting": "SELECT job, name || '=' || value AS name, false AS named FROM setting WHERE value IS NOT NULL",
    "host": "SELECT job, host AS name, named FROM host",
}
PARTS = {
    "nic": "SELECT job, host || ' ' || nic AS name, host, named FROM nic WHERE paths_out + paths_in > 0",
    "gpu": "SELECT job, host || ' GPU ' || gpu AS name, host, named FROM rank WHERE gpu IS NOT NULL",
}
"""Of each kind, one row for each job in which it was used."""


def wilson(bad: int, of: int) -> tuple[float, float]:
    """Return the interval in which a rate lies with a probability of 95 %."""
    if not of:
        return 0.0, 1.0
    rate, square = bad / of, _Z * _Z / of
    middle = (rate + square / 2) / (1 + square)
    half = _Z * math.sqrt(rate * (1 - rate) / of + square / of / 4) / (1 + square)
    return max(0.0, middle - half), min(1.0, middle + half)


class Logs:
    """Logarithms of factorials, and of the probabilities that are made of them."""

    def __init__(self, most: int) -> None:
        self._factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, most + 2)))])

    def _choose(self, of: Any, some: Any) -> Any:
        table = self._factorials
        return table[of] - table[some] - table[of - some]

    def fisher(self, bad: int, of: int, all_bad: int, everything: int) -> float:
        """Return the probability of as many bad ones among some of them, or more, if which ones are bad were chance."""
        seen = np.arange(bad, min(of, all_bad) + 1)
        seen = seen[of - seen <= everything - all_bad]
        if bad <= 0 or not len(seen):
            return 0.0
        ways = self._choose(all_bad, seen) + self._choose(everything - all_bad, of - seen)
        return min(0.0, _sum(ways) - float(self._choose(everything, of)))

    def binomial(self, bad: int, of: int, rate: float) -> float:
        """Return the probability of as many bad ones, or more, if each is bad with some probability."""
        if bad <= 0 or rate >= 1:
            return 0.0
        if rate <= 0:
            return -math.inf
        seen = np.arange(bad, of + 1)
        return min(0.0, _sum(self._choose(of, seen) + seen * math.log(rate) + (of - seen) * math.log1p(-rate)))


def _sum(logs: Any) -> float:
    """Return the logarithm of the sum of what these are the logarithms of."""
    most = float(logs.max())
    return most + math.log(float(np.exp(logs - most).sum()))


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
    """The logarithm of the probability of that many by chance."""

    @property
    def ratio(self) -> float:
        """How many times as many as expected."""
        return self.bad / max(self.expected, 0.5)


@record
class Suspect(Record):
    """Something with which jobs are bad more often than without it."""

    count: Count
    adjusted: float = 0.0
    """The probability of that by chance, corrected for the number of comparisons."""
    host: str | None = None
    """The host that it is or is in."""
    named: int = 0
    """Bad jobs in which findings name it."""
    together: list[str] = field(default_factory=list)
    """Others that were in exactly the same jobs."""
    cleared: list[Count] = field(default_factory=list)
    """Those that looked bad until its jobs were set aside."""


class _Pairs(NamedTuple):
    """Which jobs have what: a row for each pair."""

    names: list[str]
    jobs: Any
    """The number of the job."""
    what: Any
    """The place among the names."""
    named: Any
    """Whether a finding of the job names it."""

    def jobs_with(self, name: str, number: int) -> Any:
        """Return whether each of a number of jobs has something."""
        mine = np.zeros(number, bool)
        mine[self.jobs[self.what == self.names.index(name)]] = True
        return mine


class Comparison:
    """Compares the jobs of a store."""

    def __init__(self, connection: Any) -> None:
        self._run = run = connection.execute
        size = "CAST(ceil(log2(greatest(coalesce(hosts, 1), 1))) AS INTEGER) AS size"
        day = "CAST(epoch(start) // 86400 AS INTEGER) AS day"
        number = "CAST(row_number() OVER () - 1 AS INTEGER) AS number"
        run(f"CREATE OR REPLACE TEMP TABLE numbered AS SELECT job, bad, {size}, {day}, {number} FROM job")
        columns = run("SELECT bad, size, day FROM numbered ORDER BY number").fetchnumpy()
        self._bad = np.asarray(columns["bad"], bool)
        self._strata = _strata(np.asarray(columns["size"]), np.asarray(columns["day"]))
        self._logs = Logs(len(self._bad))
        self._kinds = {kind: self._pairs(PER_JOB[kind]) for kind in KINDS}
        parts = (run(f"SELECT count(DISTINCT name) FROM ({sql})").fetchone()[0] for sql in PARTS.values())
        self.compared = sum(len(pairs.names) for pairs in self._kinds.values()) + sum(parts)

    def _pairs(self, sql: str, values: Sequence[object] = ()) -> _Pairs:
        run = self._run
        pairs = f"SELECT job, name, bool_or(named) AS named FROM ({sql}) GROUP BY ALL"
        run(f"CREATE OR REPLACE TEMP TABLE pairs AS {pairs}", values)
        run("CREATE OR REPLACE TEMP TABLE names AS SELECT name, CAST(row_number() OVER (ORDER BY name) - 1 AS INTEGER) "
            "AS place FROM (SELECT DISTINCT name FROM pairs)")  # fmt: skip
        names = [name for (name,) in run("SELECT name FROM names ORDER BY place").fetchall()]
        joined = "FROM pairs JOIN names USING (name) JOIN numbered USING (job)"
        found = run(f"SELECT number, place, named {joined}").fetchnumpy()
        jobs, what = (np.asarray(found[column], np.int32) for column in ("number", "place"))
        return _Pairs(names, jobs, what, np.asarray(found["named"], bool))

    def counts(self, kind: str, pairs: _Pairs, left: Any) -> list[Count]:
        """Return how often jobs were bad with each thing of a kind, where that is worth a look."""
        kept = left[pairs.jobs]
        jobs, what = pairs.jobs[kept], pairs.what[kept]
        is_bad, number, strata = self._bad[jobs], len(pairs.names), int(self._strata.max(initial=0)) + 1
        own, bad = np.bincount(what, minlength=number), np.bincount(what[is_bad], minlength=number)
        everything, all_bad = int(left.sum()), int((left & self._bad).sum())
        rest = (all_bad - bad) / np.maximum(everything - own, 1)
        often = np.flatnonzero((bad >= _LEAST_BAD) & (bad > _LEAST_RATIO * own * rest) & (own < everything))
        chances = {
            int(place): self._logs.fisher(int(bad[place]), int(own[place]), all_bad, everything) for place in often
        }
        looked_at = [place for place, chance in chances.items() if chance <= _WORTHWHILE]
        # By size and day: the rate among jobs without it is what is to be expected of those with it.
        row = np.full(number, -1)
        row[looked_at] = np.arange(len(looked_at))
        cells = row[what] * strata + self._strata[jobs]
        shape = (len(looked_at), strata)
        own_in = np.bincount(cells[row[what] >= 0], minlength=len(looked_at) * strata).reshape(shape)
        bad_in = np.bincount(cells[(row[what] >= 0) & is_bad], minlength=len(looked_at) * strata).reshape(shape)
        others = np.bincount(self._strata[left], minlength=strata) - own_in
        bad_others = np.bincount(self._strata[left & self._bad], minlength=strata) - bad_in
        own_in = own_in * (others > 0)
        expected = (own_in * bad_others / np.maximum(others, 1)).sum(axis=1)
        compared, seen = own_in.sum(axis=1), (bad_in * (others > 0)).sum(axis=1)
        found = []
        for at, place in enumerate(looked_at):
            of, rate = int(compared[at]), float(expected[at]) / max(int(compared[at]), 1)
            chance = max(chances[place], self._logs.binomial(int(seen[at]), of, rate))
            found.append(
                Count(kind, pairs.names[place], int(bad[place]), int(own[place]), rate * float(own[place]), chance)
            )
        return found

    def suspects(self) -> list[Suspect]:
        """Return the suspects, in the order in which they were found: the surest first."""
        left = np.ones(len(self._bad), bool)
        found: list[Suspect] = []
        while len(found) < _MOST and (self._bad & left).any():
            counts = [count for kind in KINDS for count in self.counts(kind, self._kinds[kind], left)]
            limit = math.log(ALPHA / max(self.compared - len(found), 1))
            guilty = [count for count in counts if count.chance <= limit and count.ratio >= _LEAST_RATIO]
            still = {(count.kind, count.name) for count in guilty}
            for suspect in found:
                suspect.cleared = [count for count in suspect.cleared if (count.kind, count.name) not in still]
            if not guilty:
                break
            best = min(guilty, key=lambda count: (count.chance, KINDS.index(count.kind)))
            suspect, pairs = Suspect(best), self._kinds[best.kind]
            if best.kind == "host":
                suspect, pairs = self._localized(best, left)
            suspect.adjusted = min(1.0, math.exp(suspect.count.chance) * (self.compared - len(found)))
            mine = pairs.jobs_with(suspect.count.name, len(left)) & left
            alike = [count for count in guilty if count != best and (count.bad, count.jobs) == (best.bad, best.jobs)]
            for count in alike:
                if (self._kinds[count.kind].jobs_with(count.name, len(left)) >= mine).all():
                    suspect.together.append(f"{count.kind} {count.name}")
            suspect.cleared = [count for count in guilty if count not in (best, suspect.count, *alike)]
            found.append(suspect)
            left &= ~mine
        return found

    def _localized(self, host: Count, left: Any) -> tuple[Suspect, _Pairs]:
        """The suspect in a host: a NIC or GPU, if jobs without it are sound or findings single it out; or the host."""
        parts: list[tuple[Suspect, _Pairs]] = []
        for kind, sql in PARTS.items():
            pairs = self._pairs(f"SELECT * FROM ({sql}) WHERE host = ?", [host.name])
            parts += [(self._suspect(count, host, pairs, left), pairs) for count in self.counts(kind, pairs, left)]

        def is_alone(part: Suspect) -> bool:
            """Return whether jobs without the part are sound, and would hardly be if they had the fault, too."""
            count, others, bad = part.count, host.jobs - part.count.jobs, host.bad - part.count.bad
            fault = self._logs.binomial(others - bad, others, 1 - count.bad / count.jobs)
            sound = self._logs.binomial(bad, others, host.expected / host.jobs)
            limit = math.log(ALPHA if 2 * part.named > count.bad else ALPHA / 100)
            return fault < limit and sound > math.log(ALPHA)

        alone = [part for part in parts if is_alone(part[0])]
        if alone:
            return min(alone, key=lambda part: (2 * part[0].named <= part[0].count.bad, part[0].count.chance))
        first, *others = sorted((part for part, _ in parts), key=lambda part: -part.named) or [Suspect(host)]
        if 2 * first.named > first.count.bad and all(2 * other.named < first.named for other in others):
            return next(part for part in parts if part[0] is first)
        return self._suspect(host, host, self._kinds["host"], left), self._kinds["host"]

    def _suspect(self, count: Count, host: Count, pairs: _Pairs, left: Any) -> Suspect:
        named = pairs.jobs[pairs.named & (pairs.what == pairs.names.index(count.name))]
        return Suspect(count, 0.0, host.name, int((self._bad & left)[named].sum()))


def _strata(*columns: Any) -> Any:
    """Numbers for jobs that are alike in as many columns as the number of jobs allows."""
    strata = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        least = int(column.min(initial=0))
        width = int(column.max(initial=0)) - least + 1
        _, finer = np.unique(strata * width + column - least, return_inverse=True)
        if len(finer) and len(finer) / (finer.max() + 1) >= _LEAST_IN_STRATUM:
            strata = finer
    return strata
