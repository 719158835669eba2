"""What is found does not depend on what a collector puts around lines, nor on communicators that nobody uses."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable

import pytest
import sample_data
from few_examples import every
from repository import TESTS

import nccl_inspect
from nccl_inspect.model.job import Job


def findings_in(text: str) -> list[object]:
    job = nccl_inspect.read(text.encode())
    return [job.verdict, *((one.rule, one.severity, one.confidence, one.ranks, one.summary) for one in job.findings)]


def time(number: int) -> str:
    """Return a time of its own for each line."""
    return f"2026-11-20T23:{13 + number // 6000:02}:{number // 100 % 60:02}.{number % 100:02}7186812Z"


WRAPS: dict[str, Callable[[str, int], str]] = {
    "timestamps": lambda line, number: f"{time(number)} {line}",
    "cri": lambda line, number: f"{time(number)} stdout F {line}",
    "prefix": lambda line, _: f"[pod/trainer-0/pytorch] {line}",
    "prefix and timestamps": lambda line, number: f"[pod/trainer-0/pytorch] {time(number)} {line}",
    "json": lambda line, number: json.dumps({"log": f"{line}\n", "stream": "stdout", "time": time(number)}),
}
"""The forms of ``kubectl logs --timestamps`` and ``--prefix``, of CRI's files and of Docker's json-file driver."""


@every(15)
def test_how_a_job_ended_is_told_alike_whatever_a_collector_puts_around_its_lines(step: int) -> None:
    wrong = []
    folders = sample_data.FOLDER / "launchers", sample_data.FOLDER / "faults", TESTS / "launchers"
    files = sorted(file for folder in folders for file in folder.iterdir() if file.suffix in (".gz", ".log"))
    for number, file in enumerate(files[::step]):
        data = file.read_bytes()
        text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode(errors="replace")
        lines = [line.rstrip("\r") for line in text.split("\n")[:-1]]
        bare = findings_in("".join(f"{line}\n" for line in lines))
        for name, wrap in [*WRAPS.items()][number % 2 :: 2]:  # each form with half of the files
            wrapped = findings_in("".join(f"{wrap(line, at)}\n" for at, line in enumerate(lines)))
            if wrapped != bare:
                wrong.append(f"{file}: {name}: {wrapped}, bare: {bare}")
    assert not wrong, "\n".join(wrong)


_RELEASES = re.compile(r"NCCL version 2\.(2[2-9]|3\d)\.")
"""They connect a communicator when it is first used."""
_COMPLETE = re.compile(
    r"(?m)^(?P<prefix>.*NCCL INFO )\w+ comm (?P<comm>0x[0-9a-f]+) (?P<who>rank (?P<rank>\d+) nranks [^1]\S* .*)"
    r" commId 0x[0-9a-f]+ - Init COMPLETE$"
)
"""A root communicator of several ranks."""


def with_lazy_split(text: str) -> str:
    """Return the log of the same job, which splits its root communicators and uses nothing of that."""

    def split(found: re.Match[str]) -> str:
        comm, rank = found["comm"], found["rank"]
        call = f"ncclCommSplit comm {comm}77 {found['who']} parent {comm} splitCount 1 color 0 key {rank}"
        lines = (f"{found['prefix']}{call}- Init START", f"{found['prefix']}{call} - Init COMPLETE")
        return "\n".join((found[0], *lines))

    return _COMPLETE.sub(split, text)


def judge_pieces(job: Job) -> list[str]:
    """Return what the rules say, without numbers of lines."""
    found = [f"{one.rule} {one.severity} {one.confidence}: {one.summary}" for one in job.findings]
    found += [f"{one.rule} not judged: {one.reason}" for one in job.not_judged]
    return sorted(re.sub(r"(line|comm) \d+", r"\1", one) for one in [*found, job.verdict])


@pytest.mark.slow
def test_a_communicator_that_is_only_initialised_changes_nothing() -> None:
    wrong, logs = [], 0
    for name in sample_data.names():
        text = b"".join(sample_data.contents(name)).decode(errors="replace")
        if _RELEASES.search(text) and "splitCount" not in text and _COMPLETE.search(text):
            before, after = (judge_pieces(nccl_inspect.read(log.encode())) for log in (text, with_lazy_split(text)))
            logs += 1
            if before != after:
                wrong.append(f"sample_logs/{name}: {after}, not {before}")
    assert logs > 5
    assert not wrong, "\n".join(wrong)
