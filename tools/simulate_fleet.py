"""A simulated month of jobs in a store of ``nccl-inspect fleet``, with known faults: hosts, a NIC and an image.

Jobs of each size are printed and judged once, sound and with each fault; the rows of all others are those of these,
with other hosts. They are appended by the same code as those of real logs.

    python tools/simulate_fleet.py DIR --jobs 100000 --background 0.2 --seed 1
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("", "tests/helpers")]
import large_job  # noqa: E402

from nccl_inspect.extras.fleet.store import Store  # noqa: E402
from nccl_inspect.extras.fleet.tables import TABLES, Tables, make_rows  # noqa: E402
from nccl_inspect.pipeline import reading  # noqa: E402

BEGIN = datetime(2026, 11, 1)
_HOST = "train-7f9c-node-"
_IMAGES = ("train:1.4", "train:1.5", "train:1.6", "eval:7", "sft:2.1")
BAD_IMAGE, BAD_NIC = "train:1.5", "NIC 3"
_BY_HOST, _BY_NIC, _BY_IMAGE = 0.5, 0.6, 0.5
"""How often a fault makes a job bad that could have been good."""


_LAST_WORDS = {
    "host": [
        f"[2026-11-20 23:14:01.000000] {_HOST}0:{4000 + rank}:{4000 + rank} [{rank}] enqueue.cc:1500 NCCL WARN "
        "Cuda failure 214 'uncorrectable ECC error encountered'\n".encode()
        for rank in (0, 2)
    ],
    "program": [
        b"[rank1]: Traceback (most recent call last):\n",
        b'[rank1]:   File "/work/train.py", line 210, in <module>\n',
        b"[rank1]: ValueError: loss is nan at step 1200\n",
    ],
}
"""What a job prints before it ends."""


class Truth(NamedTuple):
    """Holds what is wrong."""

    hosts: tuple[str, ...]
    nic: str
    image: str

    @property
    def names(self) -> set[tuple[str, str]]:
        """Return what a report has to name, as kind and name."""
        return {*(("host", name) for name in self.hosts), ("nic", self.nic), ("image", self.image)}


def text(hosts: int, on_each: int, fault: str = "") -> bytes:
    """Return the log of a job; the fault is that of host 0: of it, of its fourth NIC, or of the program."""
    lines = large_job.log(hosts, on_each, 2).splitlines(keepends=True)
    if fault == "nic":
        own = f"{_HOST}0:".encode()
        lines = [line.replace(b"Libfabric/3/GDRDMA", b"Libfabric/3") if own in line else line for line in lines]
    elif fault:
        lines = [line for line in lines if b"Destroy COMPLETE" not in line] + _LAST_WORDS[fault]
    return b"".join(lines)


@cache
def model(hosts: int, on_each: int, fault: str) -> Tables:
    """Return the judged job that others of its size and fault are like."""
    return make_rows(
        reading.Judge(reading.Options()).find_job(reading.fold(text(hosts, on_each, fault))), "", 0.0, None
    )


class Simulated(NamedTuple):
    """A job that is like another one, on other hosts."""

    model: Tables
    ident: str
    start: datetime
    hosts: list[str]
    image: str


class Fleet:
    """Simulates jobs.

    Args:
        seed: of everything.
        hosts: how many there are.
        background: how often a sound job is bad all the same.
        most: hosts of the largest job.
    """

    def __init__(self, seed: int, hosts: int = 1000, background: float = 0.05, most: int = 128) -> None:
        self._random = random.Random(seed)
        self._background = background
        self._names = [f"node-{number:04}" for number in range(hosts)]
        self._sizes = [2**power for power in range(most.bit_length())]
        ill = self._random.sample(self._names, 4)
        self.truth = Truth(tuple(ill[:3]), f"{ill[3]} {BAD_NIC}", BAD_IMAGE)
        self._with_bad_nic = ill[3]

    def jobs(self, number: int, days: int = 30) -> Iterator[Simulated]:
        """Yield jobs in the order in which they begin."""
        for place in range(number):
            start = BEGIN + timedelta(days=days * place / number)
            yield self._job(f"{self._random.getrandbits(80):020x}", start)

    def _job(self, ident: str, start: datetime) -> Simulated:
        chance = self._random.random
        (size,) = self._random.choices(self._sizes, [size**-0.6 for size in self._sizes])
        on_each = self._random.choice((8, 8, 4))
        first = self._random.randrange(len(self._names))
        hosts = [self._names[(first + place) % len(self._names)] for place in range(size)]
        if chance() < 0.3:
            hosts = self._random.sample(self._names, size)
        image = self._random.choice(_IMAGES)
        ill = [host for host in hosts if host in self.truth.hosts and chance() < _BY_HOST]
        uses_nic = self._with_bad_nic in hosts and size > 1 and on_each == 8
        fault = ""
        if chance() < self._background or (image == self.truth.image and chance() < _BY_IMAGE):
            fault = "program"
        if ill:
            hosts.remove(ill[0])
            hosts.insert(0, ill[0])
            fault = "host"
        elif uses_nic and chance() < _BY_NIC:
            hosts.remove(self._with_bad_nic)
            hosts.insert(0, self._with_bad_nic)
            fault = "nic"
        return Simulated(model(size, on_each, fault), ident, start, hosts, image)


def rows(jobs: list[Simulated]) -> Tables:
    """Return the rows of some jobs."""
    names = pa.array([host for job in jobs for host in job.hosts], pa.string())
    first = np.cumsum([0, *(len(job.hosts) for job in jobs)])[:-1]
    tables = {}
    for table in TABLES:
        one = pa.concat_tables([job.model[table] for job in jobs])
        own = np.repeat(np.arange(len(jobs)), [len(job.model[table]) for job in jobs])
        values = {"job": pa.array([job.ident for job in jobs]), "start": pa.array([job.start for job in jobs])}
        columns: dict[str, Any] = {name: value.take(pa.array(own)) for name, value in values.items()}
        if table == "job":
            columns["name"] = pa.array([f"{job.ident[:8]}.log" for job in jobs])
            columns["image"] = pa.array([job.image for job in jobs])
        if "host" in one.column_names:
            columns["host"] = names.take(
                pa.array(first[own] + pc.cast(pc.replace_substring(one["host"], _HOST, ""), "int64"))
            )
        if table == "finding":
            new = [{f"{_HOST}{place}": host for place, host in enumerate(job.hosts)} for job in jobs]
            for column in ("hosts", "culprits"):
                lists = zip(one[column].to_pylist(), own, strict=True)
                columns[column] = pa.array([[new[place].get(name, name) for name in some] for some, place in lists])
        for name, value in columns.items():
            field = one.schema.field(name)
            one = one.set_column(one.schema.get_field_index(name), field, value.cast(field.type))
        tables[table] = one
    return tables


def fill(url: str, simulated: Iterable[Simulated]) -> None:
    """Append jobs to a store, those of a day at a time."""
    store = Store(url, make=True)
    for day, jobs in groupby(simulated, key=lambda job: job.start.date().isoformat()):
        store.append(day, [rows(list(jobs))])


def main() -> None:
    """Simulate a month."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--background", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    fleet = Fleet(given.seed, given.hosts, given.background)
    began = time.monotonic()
    fill(given.store, fleet.jobs(given.jobs))
    print(f"{given.jobs} jobs in {time.monotonic() - began:.0f} s; to be found:")
    for kind, name in sorted(fleet.truth.names):
        print(f"  {kind} {name}")


if __name__ == "__main__":
    main()
