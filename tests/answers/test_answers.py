"""All recorded inputs give the answers that are stored for them; `make answers` stores them anew."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

import logs
import pytest
import simulation
from answers import CORPORA, SHARDS, answer, changes, inputs_of, read_stored, shard
from fuzz_blocks import LineReader
from known_labels import KEYS, contradictions, inputs, labels
from wide_job import WideJob, collect_lines

import nccl_inspect
from nccl_inspect.pipeline import reader, reading


def parts() -> Iterator[Any]:
    """Yield the parts of all corpora; recordings that repeat others, and half of the largest corpora, are slow."""
    for corpus, number in product(CORPORA, range(SHARDS)):
        is_slow = corpus == "repeated" or (corpus in ("built", "outputs") and number % 2 == 1)
        yield pytest.param(corpus, number, marks=[pytest.mark.slow] * is_slow)


@pytest.mark.parametrize(("corpus", "number"), list(parts()))
def test_answers_are_those_that_are_stored_and_known(corpus: str, number: int) -> None:
    before, differences, wrong = read_stored(corpus), [], []
    for one in shard(corpus, number):
        found, job = answer(one)
        differences += changes(one.name, before.get(one.name), found)
        if one.name in labels():
            known = contradictions(one, job, found) if job else [f"not read: {found}"]
            wrong += [f"{labels()[one.name][0]}: {one.name}: {what}" for what in known]
    if differences:
        differences.insert(0, f"answers differ from tests/answers/{corpus}.jsonl; `make answers` stores them:")
    if wrong:
        wrong.insert(0, "labels in tests/labels say otherwise:")
    assert not wrong + differences, "\n".join(wrong + differences[:200])


@pytest.mark.parametrize("corpus", CORPORA)
def test_each_stored_answer_has_an_input(corpus: str) -> None:
    assert sorted(one.name for one in inputs_of(corpus)) == sorted(read_stored(corpus))


def test_each_label_is_about_an_input_and_has_known_keys() -> None:
    unknown = [f"{file}: {name}" for name, (file, _) in labels().items() if name not in inputs()]
    odd = [
        f"{file}: {name}: {sorted(keys - KEYS)}"
        for name, (file, label) in labels().items()
        if (keys := {*label}) - KEYS
    ]
    assert not unknown + odd


def test_every_log_of_a_kind_with_labels_has_one() -> None:
    folders = {name.rpartition("/")[0] for name in labels() if name.startswith(("tests/", "sample_logs/"))}
    assert not [name for name in inputs() if name.rpartition("/")[0] in folders and name not in labels()]


# --- Jobs too large to be kept, against their truth and what reading line by line gives

Paths = dict[tuple[int, int], tuple[str, bool | None]]
Job = tuple[bytes | list[bytes], Paths]
"""A log, or one for each host, and the path of each pair of ranks."""
BLOCK = 4096
"""Bytes that a process writes to a pipe at once."""


def wide_job(wrap: Callable[[Iterable[str]], Iterable[str]] = iter, hosts: int = 32) -> Job:
    job = WideJob(hosts, no_gdr=2)
    return "".join(wrap(job.lines())).encode(), job.truth


def torn() -> Job:
    """Return each process writes its lines in blocks of 4,096 bytes, as they happen to end."""
    job, chance = WideJob(32), random.Random(7)
    outputs: dict[str, bytes] = {}
    for line in job.lines():
        process = line[: line.index(":", line.index(":") + 1)]
        outputs[process] = outputs.get(process, b"") + line.encode()
    waiting = [deque(data[at : at + BLOCK] for at in range(0, len(data), BLOCK)) for data in outputs.values()]
    log = bytearray()
    while waiting := [blocks for blocks in waiting if blocks]:
        log += chance.choice(waiting).popleft()
    return bytes(log), job.truth


def sparse() -> Job:
    """Return a job seven of eight of whose lines are the program's."""
    job = WideJob(16)
    steps = iter(b"".join(logs.training(4_000_000, share=10**9)).decode().splitlines(True))

    def mixed_jobs() -> Iterator[str]:
        for line in job.lines():
            yield line
            yield from islice(steps, 7)

    return "".join(mixed_jobs()).encode(), job.truth


def flood() -> Job:
    """Return a job in which a process prints one error again and again after the start."""
    job = WideJob(16)
    log = "".join(job.lines()).encode()
    head = log[: log.index(b" NCCL ")]
    return log + (
        head + b" misc/socket.cc:46 NCCL WARN socketProgress: Connection closed by remote peer\n"
    ) * 9_000, job.truth


def many_files() -> Job:
    job = WideJob(32)
    hosts: dict[str, list[str]] = {}
    for line in job.lines():
        hosts.setdefault(line[: line.index(":")], []).append(line)
    return ["".join(lines).encode() for lines in hosts.values()], job.truth


def lazy_splits() -> Job:
    """Return communicators of three levels, each connected when it is first used."""
    chance = random.Random(3)
    release = next(one for one in simulation.RELEASES if one.name == "2.28.9")
    job = simulation.Job(release, [f"node-{host}" for host in range(4)], 8, chance, channels=6)
    (world,) = job.create([list(range(32))])
    rows = job.create([list(range(first, first + 8)) for first in range(0, 32, 8)], world)
    columns = job.create([list(range(first, 32, 8)) for first in range(8)], world)
    for groups in ([world], rows, columns):
        job.collective(groups, trees=True)
        job.exchange(groups)
    lines = job.log()
    pairs = {(truth.src, truth.dst) for _, truth in lines if truth}
    truth: Paths = {(a, b): ("P2P", None) if a // 8 == b // 8 else ("NET", False) for a, b in pairs}
    return "".join(f"{line}\n" for line, _ in lines).encode(), truth


KINDS: dict[str, Callable[[], Job]] = {
    "plain": wide_job,
    "pod and time": lambda: wide_job(collect_lines, 24),
    "Docker's JSON": lambda: wide_job(logs.wrap_in_docker, 24),
    "torn": torn,
    "sparse": sparse,
    "flood": flood,
    "many files": many_files,
    "lazy communicators with splits": lazy_splits,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_log_gives_its_truth_and_what_reading_line_by_line_gives(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, truth = KINDS[kind]()
    files = [tmp_path / f"host-{number}.log" for number in range(len(data))] if isinstance(data, list) else []
    for file, part in zip(files, data, strict=True) if isinstance(data, list) else ():
        file.write_bytes(part)
    log = list(map(str, files)) or data
    assert all(len(part) > 1 << 20 for part in ([data] if isinstance(data, bytes) else [b"".join(data)]))

    def document() -> dict[str, Any]:
        job = nccl_inspect.read(log)
        gdr = {None: None, True: True, False: False, "partial": False}
        return {**job.to_dict(), "found": {(one.src, one.dst): (one.transport, gdr[one.gdr]) for one in job.paths}}

    in_blocks = document()
    for module in (reading, reader):
        monkeypatch.setattr(module, "Reader", LineReader)
    by_line = document()
    assert in_blocks["found"] == truth
    assert [key for key in by_line if by_line[key] != in_blocks[key]] == []
