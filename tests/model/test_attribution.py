"""Connection lines find their communicator, or the tool says that it guesses: against jobs that are known by making."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest
import sample_data
import simulation
from hypothesis import given
from hypothesis import strategies as st
from simulation import Comm, Job, Release
from wide_job import WideJob

import nccl_inspect
from nccl_inspect.model import resolve
from nccl_inspect.model.fold import source_and_line
from nccl_inspect.model.processes import Gathered

SEEDS = st.integers(0, 1 << 30)
LINE = tuple[str, tuple[Job, simulation.Truth] | None]


def program(release: Release, random: Random, first_pid: int = 1000) -> Job:
    """Return a job with a world, some groups beside it or split from it, all used in some order."""
    hosts = [f"node-{index}" for index in range(random.choice((1, 1, 2, 2, 3, 4)))]
    gpus = random.choice((1, 2, 2, 4)) if len(hosts) > 1 else random.choice((2, 4))
    threads = random.random() < 0.2
    job = Job(
        release,
        hosts,
        gpus,
        random,
        threads=threads,
        shm=not threads and random.random() < 0.25,
        scattered=random.random() < 0.2,
        first_pid=first_pid,
        channels=random.choice((1, 2, 3)),
    )
    made = [job.create([list(range(job.nranks))])]
    for _ in range(random.choice((0, 1, 2, 3, 4))):
        nested = [comm for group in made for comm in group if comm.parent]
        parent = made[0][0] if release.splits and random.random() < 0.6 else None
        if parent and nested and random.random() < 0.2:
            parent = random.choice(nested)
        made.append(job.create(_groups((parent or made[0][0]).ranks, random), parent))
        if random.random() < 0.4:
            _use(job, made, random)
    for _ in range(random.randint(1, 3)):
        _use(job, made, random)
    if random.random() < 0.3:
        job.destroy([comm for group in made for comm in group])
    return job


def _groups(ranks: list[int], random: Random) -> list[list[int]]:
    size = random.choice([size for size in range(1, len(ranks) + 1) if len(ranks) % size == 0])
    groups = len(ranks) // size
    kind = random.choice(("contiguous", "strided", "same", "some"))
    if kind == "contiguous":
        return [ranks[at : at + size] for at in range(0, len(ranks), size)]
    if kind == "strided":
        return [ranks[at::groups] for at in range(groups)]
    return [list(ranks)] if kind == "same" else [sorted(random.sample(ranks, random.randint(1, len(ranks))))]


def _use(job: Job, made: list[list[Comm]], random: Random) -> None:
    chosen = random.sample(made, min(random.choice((1, 1, 2)), len(made)))
    comms = [comm for group in chosen for comm in group]
    if random.random() < 0.5:
        job.collective(comms, trees=random.random() < 0.5)
    else:
        job.exchange(comms)


def lines_of(job: Job) -> list[LINE]:
    return [(text, (job, truth) if truth else None) for text, truth in job.log()]


@dataclass
class Outcome:
    """Holds how the lines of a log were understood."""

    lines: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    """Lines with wrong ranks that were not called a guess."""
    misnamed: list[str] = field(default_factory=list)
    """Lines with the right ranks and a wrong communicator that were not called a guess."""


def outcome(log: list[LINE]) -> Outcome:
    """Return how a log is understood."""
    fold = sample_data.fold_sources([("job.log", [text.encode() for text, _ in log])])
    assert not fold.unrecognised
    built = resolve._Builder(fold, Gathered.gather(fold))
    comms = {comm.name: comm for comm in built._communicators}
    assert len(comms) == len(built._communicators), "names are unique"
    found = Outcome()
    found.lines["unplaced"] = built._lines.unplaced.total()
    for line in (line for pair in built._lines.pairs for line in built._lines.list_lines(pair)):
        text, said = log[source_and_line(line.edge.place)[1] - 1]
        assert said is not None
        job, truth = said
        members = job.comms[truth.comm].ranks
        comm = comms.get(line.communicator)
        in_world = line.placement.space == "global"
        want = (truth.src, truth.dst) if in_world else (members.index(truth.src), members.index(truth.dst))
        known = list(comm.global_ranks) if comm and in_world else members
        named = len(known) == len(members) and all(a in (None, b) for a, b in zip(known, members, strict=True))
        found.lines["guessed" if line.placement.guessed else "sure"] += line.edge.lines
        if not line.placement.guessed and (line.src, line.dst) != want:
            found.wrong.append(f"{text}: {line.src}->{line.dst} of {line.communicator} instead of {want}")
        elif not line.placement.guessed and not named:
            found.misnamed.append(f"{text}: {line.communicator} instead of {members}")
    return found


WITH_START = [one for one in simulation.RELEASES if one.start]


@given(st.sampled_from(simulation.RELEASES), SEEDS)
def test_a_whole_log_is_never_read_wrong(release: Release, seed: int) -> None:
    found = outcome(lines_of(program(release, Random(seed))))
    assert found.wrong == found.misnamed == []


def broken_off(release: Release, seed: int) -> list[LINE]:
    random = Random(seed)
    log = lines_of(program(release, random))
    return log[: random.randint(1, len(log))]


@given(st.sampled_from(WITH_START), SEEDS)
def test_a_log_that_breaks_off_is_never_read_wrong(release: Release, seed: int) -> None:
    assert outcome(broken_off(release, seed)).wrong == []


def test_logs_that_were_once_read_wrong_are_not() -> None:
    wrong = [
        f"{release.name}, seed {seed}: {outcome(broken_off(release, seed)).wrong}"
        for release in WITH_START
        for seed in (119, 437, 1828, 2989)
        if outcome(broken_off(release, seed)).wrong
    ]
    assert not wrong, "\n".join(wrong)


@given(st.sampled_from([one for one in WITH_START if not one.caller_connects]), SEEDS)
def test_a_log_with_holes_is_never_read_wrong(release: Release, seed: int) -> None:
    random = Random(seed)
    log = [line for line in lines_of(program(release, random)) if random.random() > 0.03]
    assert outcome(log).wrong == []


@pytest.mark.slow
@given(st.sampled_from(simulation.RELEASES), SEEDS)
def test_two_jobs_on_the_same_hosts_are_not_mixed(release: Release, seed: int) -> None:
    random = Random(seed)
    jobs = program(release, random), program(release, random, first_pid=9000)
    found = outcome(simulation.mix_streams([lines_of(job) for job in jobs], random))
    assert found.wrong == found.misnamed == []


USUAL = [one for one in simulation.RELEASES if one.splits] + [simulation.RELEASES[3]]


def test_what_usual_jobs_print_is_placed_without_a_guess() -> None:
    """Tensor-parallel groups on a node, data-parallel groups across nodes: every pair, and nothing else."""
    for release in USUAL:
        job = Job(release, ["node-0", "node-1"], 4, Random(release.name), channels=1)
        (world,) = job.create([list(range(8))])
        parent = world if release.splits else None
        tensor = job.create([[0, 1, 2, 3], [4, 5, 6, 7]], parent)
        data = job.create([[0, 4], [1, 5], [2, 6], [3, 7]], parent)
        for comms in ([world], tensor, data):
            job.collective(comms, trees=True)
        log = lines_of(job)
        found = outcome(log)
        assert found.wrong == found.misnamed == []
        assert found.lines["unplaced"] == 0
        read = nccl_inspect.read("".join(f"{text}\n" for text, _ in log).encode())
        pairs = {(truth[1].src, truth[1].dst) for _, truth in log if truth}
        assert {(path.src, path.dst) for path in read.paths} == pairs
        assert sum(path.guessed for path in read.paths) <= len(read.paths) // 4
        assert {tuple(comm.ranks) for comm in read.communicators} == {tuple(comm.ranks) for comm in job.comms}


def test_lines_of_many_communicators_of_the_same_ranks_are_all_placed() -> None:
    """All of them exist at once, and none of their lines names one."""
    job = Job(simulation.RELEASES[-1], ["node-0"], 2, Random(0))
    (world,) = job.create([[0, 1]])
    comms = [job.create([[0, 1]], world)[0] for _ in range(60)]
    for comm in comms:
        job.collective([comm], trees=True)
    found = outcome(lines_of(job))
    assert found.wrong == found.misnamed == []
    assert found.lines["unplaced"] == 0


def test_the_other_ends_tell_the_communicators_of_a_wide_job() -> None:
    job = WideJob(256, rounds=2)
    paths = nccl_inspect.read("".join(job.lines()).encode()).paths
    assert set(paths.values("src", "dst")) == set(job.truth)
