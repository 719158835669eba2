"""What the bad jobs of a store share and the others lack: hosts, NICs, GPUs, images, releases, settings.

Whatever occurs in jobs is compared by Fisher's exact test, and with the jobs of like size and time; the probabilities
are corrected for the number of comparisons (Holm). The one with the least probability is a suspect. Then its jobs are
set aside and the rest is compared again, so that nothing is suspected for the company that it kept. Of a host, a NIC or
GPU is suspected in its place if the jobs without it are sound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import field
from functools import partial
from typing import Any

from nccl_inspect.extras.fleet.queries import ask
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
KINDS = ("image", "release", "setting", "host", "nic", "gpu")
"""What is compared, the coarser before the finer: of those that occur in the same jobs, the first is suspected."""


def wilson(bad: int, jobs: int) -> tuple[float, float]:
    """Return the interval in which a rate lies with a probability of 95 %."""
    if not jobs:
        return 0.0, 1.0
    rate, square = bad / jobs, _Z * _Z / jobs
    middle = (rate + square / 2) / (1 + square)
    half = _Z * math.sqrt(rate * (1 - rate) / jobs + square / jobs / 4) / (1 + square)
    return max(0.0, middle - half), min(1.0, middle + half)


def fisher(bad: int, jobs: int, all_bad: int, everything: int) -> float:
    """Return the logarithm of the probability of as many bad ones among some jobs, or more, if that were chance."""
    good = everything - all_bad
    bad = max(bad, jobs - good)
    if bad <= 0:
        return 0.0
    first = _choose(all_bad, bad) + _choose(good, jobs - bad) - _choose(everything, jobs)
    ratios = (
        (all_bad - seen) * (jobs - seen) / ((seen + 1) * (good - jobs + seen + 1))
        for seen in range(bad, min(jobs, all_bad))
    )
    return _sum(first, ratios)


def binomial(bad: int, jobs: int, rate: float) -> float:
    """Return the logarithm of the probability of as many bad jobs, or more, if each is bad with some probability."""
    if bad <= 0 or rate >= 1:
        return 0.0
    if rate <= 0:
        return -math.inf
    first = _choose(jobs, bad) + bad * math.log(rate) + (jobs - bad) * math.log1p(-rate)
    return _sum(first, ((jobs - seen) / (seen + 1) * rate / (1 - rate) for seen in range(bad, jobs)))


def _choose(jobs: int, some: int) -> float:
    return math.lgamma(jobs + 1) - math.lgamma(some + 1) - math.lgamma(jobs - some + 1)


def _sum(first: float, ratios: Iterable[float]) -> float:
    """Return the logarithm of a sum, from that of its first term and the ratio of each term to the one before."""
    total = term = 1.0
    for ratio in ratios:
        term *= ratio
        total += term
        if ratio < 1 and term < total * 1e-17:
            break
    return min(0.0, first + math.log(total))


@frozen
class Count(Frozen):
    """Holds how often jobs with something were bad."""

    thing: int | str
    """Its number; of a NIC or GPU its kind and name."""
    kind: str
    name: str
    host: str | None
    """The host that it is or is in."""
    bad: int
    jobs: int
    named: int
    """Bad jobs in which findings name it."""
    expected: float
    """Bad ones among as many jobs of like size and time without it."""
    chance: float
    """The logarithm of the probability of that many by chance."""

    @property
    def ratio(self) -> float:
        """Bad jobs divided by those expected."""
        return self.bad / max(self.expected, 0.5)

    @property
    def is_named(self) -> bool:
        """Findings name it in most of its bad jobs."""
        return 2 * self.named > self.bad


@record
class Suspect(Record):
    """Holds something with which jobs are bad more often than without it."""

    count: Count
    adjusted: float
    """The probability of that by chance, corrected for the number of comparisons."""
    together: list[str]
    """Others that were in exactly the same jobs."""
    cleared: list[Count] = field(default_factory=list)
    """Those that looked bad until its jobs were set aside."""


class Comparison:
    """Compares the jobs of a store.

    Args:
        connection: with its tables.
    """

    def __init__(self, connection: Any) -> None:
        self._ask = partial(ask, connection)
        self._ask("compared", {"least": _LEAST_IN_STRATUM})
        self._ask("pairs")
        ((self.compared,),) = (row.values() for row in self._ask("comparisons"))

    def list_suspects(self) -> list[Suspect]:
        """Return the suspects, in the order in which they were found: the surest first."""
        found: list[Suspect] = []
        while len(found) < _MOST:
            comparisons = max(self.compared - len(found), 1)
            limit = math.log(ALPHA / comparisons)
            guilty = [one for one in self._counts("pairs") if one.chance <= limit and one.ratio >= _LEAST_RATIO]
            still = {count.thing for count in guilty}
            for suspect in found:
                suspect.cleared = [count for count in suspect.cleared if count.thing not in still]
            if not guilty:
                break
            best = min(guilty, key=lambda count: (count.chance, KINDS.index(count.kind)))
            alike = [one for one in guilty if one != best and (one.bad, one.jobs) == (best.bad, best.jobs)]
            count = self._localize(best) if best.kind == "host" else best
            self._ask("mine", {"thing": count.thing}, pairs="pairs" if count is best else "parts")
            others = self._ask("together", {"things": [one.thing for one in alike]}) if alike else ()
            adjusted = min(1.0, math.exp(count.chance) * comparisons)
            cleared = [one for one in guilty if one not in (best, *alike)]
            found.append(Suspect(count, adjusted, [f"{one['kind']} {one['name']}" for one in others], cleared))
            self._ask("set_aside")
        return found

    def _counts(self, pairs: str) -> list[Count]:
        """Return how often jobs were bad with each thing, where that is worth a look."""
        found = []
        values = {"least": _LEAST_BAD, "ratio": _LEAST_RATIO}
        for row in self._ask("counts", values, pairs=pairs, things="things" if pairs == "pairs" else pairs):
            chance = fisher(row["bad"], row["jobs"], row.pop("all_bad"), row.pop("everything"))
            seen, compared = row.pop("seen"), row.pop("compared")
            rate = row.pop("expected") / compared
            if chance <= _WORTHWHILE:
                chance = max(chance, binomial(seen, compared, rate))
                found.append(Count(**row, expected=rate * row["jobs"], chance=chance))
        return found

    def _localize(self, host: Count) -> Count:
        """Return a NIC or GPU of a host if jobs without it are sound or findings single it out; else the host."""
        self._ask("parts", {"host": host.host})
        parts = self._counts("parts")

        def is_alone(part: Count) -> bool:
            """Return whether jobs without the part are sound, and would hardly be if they had the fault, too."""
            others, bad = host.jobs - part.jobs, host.bad - part.bad
            fault = binomial(others - bad, others, 1 - part.bad / part.jobs)
            sound = binomial(bad, others, host.expected / host.jobs)
            return fault < math.log(ALPHA if part.is_named else ALPHA / 100) and sound > math.log(ALPHA)

        alone = [part for part in parts if is_alone(part)]
        if alone:
            return min(alone, key=lambda part: (not part.is_named, part.chance))
        first, *others = sorted(parts, key=lambda part: -part.named) or [host]
        return first if first.is_named and all(2 * other.named < first.named for other in others) else host
