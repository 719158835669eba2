"""Rules judge what is connected: a communicator that is only initialised, or half connected, changes nothing."""

from __future__ import annotations

import re
from itertools import accumulate

import pytest
import sample_data
from railed_job import GPUS, RailedJob

import nccl_inspect
from nccl_inspect.model.job import Job

RELEASES = [f"NCCL version 2.{minor}." for minor in range(22, 33)]
COMPLETE = re.compile(
    r"(?m)^(?P<prefix>.*NCCL INFO )\w+ comm (?P<comm>0x[0-9a-f]+) (?P<who>rank (?P<rank>\d+) nranks [^1]\S* .*)"
    r" commId 0x[0-9a-f]+ - Init COMPLETE$"
)
"""A root communicator of several ranks."""
WORLD = [list(range(16))]
HOSTS = [list(range(8)), list(range(8, 16))]
PAIRS = [[gpu, gpu + GPUS] for gpu in range(GPUS)]


def with_lazy_split(text: str) -> str:
    """The log of the same job, which splits its root communicators and uses nothing of that."""

    def split(found: re.Match[str]) -> str:
        comm, rank = found["comm"], found["rank"]
        call = f"ncclCommSplit comm {comm}77 {found['who']} parent {comm} splitCount 1 color 0 key {rank}"
        lines = (f"{found['prefix']}{call}- Init START", f"{found['prefix']}{call} - Init COMPLETE")
        return "\n".join((found[0], *lines))

    return COMPLETE.sub(split, text)


def said(job: Job) -> list[str]:
    """What the rules say, without numbers of lines."""
    found = [f"{one.rule} {one.severity} {one.confidence}: {one.summary}" for one in job.findings]
    found += [f"{one.rule} not judged: {one.reason}" for one in job.not_judged]
    return sorted(re.sub(r"(line|comm) \d+", r"\1", one) for one in [*found, job.verdict])


def whole(name: str) -> bytes:
    return b"".join(sample_data.contents(name))


def is_lazy(name: str) -> bool:
    text = whole(name).decode(errors="replace")
    return any(release in text for release in RELEASES) and "splitCount" not in text and bool(COMPLETE.search(text))


@pytest.mark.parametrize("name", [name for name in sample_data.names() if is_lazy(name)])
def test_a_lazy_communicator_changes_nothing(name: str) -> None:
    log = whole(name)
    assert said(nccl_inspect.read(with_lazy_split(log.decode()).encode())) == said(nccl_inspect.read(log))


def shared(host: int, gpu: int) -> int:
    return 0 if host else gpu


def moved(host: int, gpu: int) -> int:
    return 2 if (host, gpu) == (1, 3) else gpu


def mesh_job(nic: object, *, helper: bool = False) -> RailedJob:
    """The world is connected, TP groups are, DP groups are not yet, and one more of all ranks is half."""
    job = RailedJob(nic=nic, helper=helper)  # type: ignore[arg-type]
    job.connect(WORLD)
    job.split(HOSTS)
    job.connect(HOSTS)
    job.split(PAIRS)
    job.split(WORLD)
    job.connect(WORLD, done=False)
    return job


def findings(text: str) -> dict[str, str]:
    return {one.rule: one.summary for one in nccl_inspect.read(text.encode()).findings}


@pytest.mark.parametrize("helper", [False, True])
def test_shared_nics_are_found_wherever_the_log_ends(helper: bool) -> None:
    job = mesh_job(shared, helper=helper)
    lines = [line for step in job.lines for line in step]
    ends = list(accumulate(map(len, job.lines)))
    for end in [*ends[5:], *range(ends[5], ends[-1], 37)]:
        summary = findings("".join(f"{line}\n" for line in lines[:end])).get("nic-shared", "")
        assert summary.startswith("ranks 8-15 of node-1 share mlx5_0 while mlx5_[1-7]"), (end, summary)


def test_one_nic_with_two_gpus_is_found() -> None:
    summary = findings(mesh_job(moved).text())["nic-shared"]
    assert summary == "ranks 10-11 of node-1 share mlx5_2 while mlx5_3 is idle"


def test_groups_over_hosts_do_without_a_connected_world() -> None:
    job = RailedJob(nic=shared)
    job.split(PAIRS)
    job.connect(PAIRS)
    assert "nic-shared" in findings(job.text())
    assert "nic-shared" not in findings(_some_pairs().text()), "the other ranks of the hosts connected with nobody"


def _some_pairs() -> RailedJob:
    job = RailedJob(nic=moved)
    job.split(PAIRS)
    job.connect(PAIRS[2:5])
    return job


def test_the_missing_file_of_a_rank_hides_nothing() -> None:
    text = mesh_job(shared).text()
    without = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("node-1:4011:"))
    assert findings(without)["nic-shared"].endswith("are idle, except for 1 rank not in the log")
    other = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("node-0:4003:"))
    assert findings(other)["nic-shared"].startswith("ranks 8-15")


def test_all_hosts_with_all_ranks_on_one_nic_of_eight() -> None:
    assert findings(mesh_job(lambda _host, _gpu: 0).text())["nic-shared"].startswith("ranks 0-7 of node-0 share mlx5_0")


@pytest.mark.parametrize("helper", [False, True])
def test_a_sound_job_is_quiet_wherever_the_log_ends(helper: bool) -> None:
    job = mesh_job(lambda _host, gpu: gpu, helper=helper)
    text = "".join(f"{line}\n" for step in job.lines[:-1] for line in step)
    judged = nccl_inspect.read(text.encode())
    assert judged.verdict == "ok"
    assert not [one for one in judged.findings if one.rule.startswith("nic-")]
    assert not judged.not_judged
    lines = [line for step in job.lines for line in step]
    for end in range(sum(map(len, job.lines[:5])), len(lines), 37):
        cut = nccl_inspect.read("".join(f"{line}\n" for line in lines[:end]).encode())
        assert not [one for one in cut.findings if one.rule.startswith("nic-")], end


def test_helper_threads_connect_for_the_thread_that_says_so() -> None:
    job = RailedJob(helper=True)
    job.split(PAIRS)
    job.connect(PAIRS)
    comms = nccl_inspect.read(job.text().encode()).communicators
    assert [comm.state for comm in comms] == ["complete", *["connected"] * GPUS]


def test_a_lost_connected_line_is_made_up_for_by_what_follows() -> None:
    job = RailedJob()
    job.connect(WORLD, done=False)
    stuck = nccl_inspect.read(job.text().encode())
    assert stuck.communicators[0].unconnected == list(range(16))
    job.split(HOSTS)
    went_on = nccl_inspect.read(job.text().encode())
    assert went_on.communicators[0].state == "connected"
    assert not [one for one in went_on.not_judged if one.rule == "hang-after-init"]


def test_open_communicators_are_named_by_global_ranks() -> None:
    job = RailedJob()
    job.connect(WORLD)
    job.split(PAIRS)
    job.connect(PAIRS[5:6], done=False)
    open_ones = [
        one.reason for one in nccl_inspect.read(job.text().encode()).not_judged if one.rule == "hang-after-init"
    ]
    assert open_ones == [
        "ranks 5,13 began to connect in communicator split 1 color 5 of world: stuck, or the log was cut there"
    ]
