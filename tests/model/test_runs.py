"""Several runs in one log, one name for different processes, lines that stand there twice or were run together."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import invoke
from hypothesis import given, settings
from hypothesis import strategies as st
from repository import ROOT

import nccl_inspect
from nccl_inspect import report
from nccl_inspect.model.job import Job
from nccl_inspect.util.times import moment

SAMPLES = ROOT / "sample_logs"
ONE_HOST = (SAMPLES / "p2p-nvlink-8gpu" / "job.log").read_bytes()
TIMED = (SAMPLES / "timestamps" / "job.log").read_bytes()
TWO_HOSTS = (SAMPLES / "socket-2node-tp4-dp2" / "job.log").read_bytes()


def ways(job: Job) -> list[tuple[int, int, str]]:
    return [(path.src, path.dst, path.detail) for path in job.paths]


def started_again(log: bytes) -> bytes:
    """The same processes by host and pid in another run: its communicators have other ids and pointers."""
    return re.sub(rb"(comm|commId) 0x(.)", lambda found: found[1] + b" 0x" + (b"b" if found[2] == b"a" else b"a"), log)


@pytest.mark.parametrize("command", ["paths", "topology", "traffic", "check --learn", "diff ONE", "summarize"])
def test_earlier_runs_are_not_left_out_without_a_word(command: str, tmp_path: Path) -> None:
    (tmp_path / "one.log").write_bytes(ONE_HOST)
    (tmp_path / "two.log").write_bytes(ONE_HOST + started_again(ONE_HOST))
    words = command.replace("ONE", str(tmp_path / "one.log")).split()
    result = invoke(*words, str(tmp_path / "two.log"))
    said = result.stdout if command == "summarize" else result.stderr
    assert said.count("earlier run") == 1
    assert "8 processes on 1 host" in said


def test_a_container_that_was_started_again_has_two_runs_and_the_newest_is_judged() -> None:
    lost = re.sub(rb".*Destroy COMPLETE.*\n|.*Channel 1.*\n", b"", ONE_HOST)
    job = nccl_inspect.read(lost + started_again(ONE_HOST))
    assert len(job.earlier_runs) == 1
    assert job.earlier_runs[0].startswith("8 processes on 1 host")
    assert [comm.id for comm in job.communicators] == ["world"]
    assert job.communicators[0].channels == 24
    assert ways(job) == ways(nccl_inspect.read(ONE_HOST))
    assert all(len(path.channels) == 24 for path in job.paths)


def test_what_ended_the_earlier_run_is_not_held_against_the_newest() -> None:
    warning = b"vm:1234:1234 [0] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-x to 4194660 bytes"
    pid = re.search(rb"vm:(\d+):", ONE_HOST)
    assert pid
    warning = warning.replace(b"1234", pid[1])
    assert nccl_inspect.read(ONE_HOST + warning + b"\n").verdict == "failed"
    assert nccl_inspect.read(ONE_HOST + warning + b"\n" + started_again(ONE_HOST)).verdict == "ok"


def test_a_log_that_was_appended_to_itself_is_judged_once() -> None:
    job = nccl_inspect.read(ONE_HOST + ONE_HOST)
    assert not job.earlier_runs
    assert len(job.repeated) == 8
    assert ways(job) == ways(nccl_inspect.read(ONE_HOST))
    assert len(job.communicators) == 1


@pytest.mark.parametrize("name", ["socket-2node-tp4-dp2", "v2.19.4-socket-2node", "peer-killed"])
@pytest.mark.parametrize("again", [started_again, bytes], ids=["started again", "the same once more"])
def test_the_newest_run_keeps_the_connections_of_threads_that_have_the_same_id(
    name: str, again: Callable[[bytes], bytes]
) -> None:
    """A container numbers its processes and threads anew, mostly with the same numbers."""
    log = (SAMPLES / name / "job.log").read_bytes()
    once, job = nccl_inspect.read(log), nccl_inspect.read(log + again(log))
    assert len(job.earlier_runs) == (again is started_again)
    assert bool(job.repeated) == (again is bytes)
    assert ways(job) == ways(once)
    assert job.verdict == once.verdict


def pods(log: bytes) -> list[bytes]:
    """The lines of each host."""
    hosts = sorted(set(re.findall(rb"(?m)^([\w.-]+):\d+:\d+ ", log)))
    return [b"".join(re.findall(rb"(?m)^%b:\d+:.*\n" % re.escape(host), log)) for host in hosts]


def first_lines(log: bytes) -> bytes:
    return b"".join(log.splitlines(keepends=True)[:220])


def last_lines(log: bytes) -> bytes:
    return b"".join(log.splitlines(keepends=True)[-100:])


@pytest.mark.parametrize("copied", [bytes, first_lines, last_lines])
@pytest.mark.parametrize("name", ["socket-2node-tp4-dp2", "peer-killed", "efa-provider-missing-socket-fallback"])
def test_a_pod_that_was_collected_twice_changes_nothing(
    name: str, copied: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    one, other = pods((SAMPLES / name / "job.log").read_bytes())
    files = [tmp_path / "a.log", tmp_path / "b.log", tmp_path / "c.log"]
    for file, text in zip(files, (one, other, copied(one)), strict=True):
        file.write_bytes(text)
    once, job = nccl_inspect.read(list(map(str, files[:2]))), nccl_inspect.read(list(map(str, files)))
    assert ways(job) == ways(once)
    assert [(comm.id, comm.ranks, comm.state) for comm in job.communicators] == [
        (comm.id, comm.ranks, comm.state) for comm in once.communicators
    ]
    assert not job.earlier_runs
    assert job.verdict == once.verdict
    assert job.repeated or copied is last_lines, "nothing may prove that an end without beginnings is a copy"


def test_what_was_followed_again_counts_with_its_end() -> None:
    for log in (ONE_HOST, TWO_HOSTS):
        once, job = nccl_inspect.read(log), nccl_inspect.read(first_lines(log) + log)
        assert ways(job) == ways(once)
        assert [(comm.id, comm.state) for comm in job.communicators] == [(c.id, c.state) for c in once.communicators]


@pytest.mark.parametrize("log", [ONE_HOST, TIMED, TWO_HOSTS])
def test_lines_that_were_collected_twice_change_nothing(log: bytes) -> None:
    twice = b"".join(line + line for line in log.splitlines(keepends=True))
    once, job = nccl_inspect.read(log), nccl_inspect.read(twice)
    assert ways(job) == ways(once)
    assert [(comm.id, comm.state) for comm in job.communicators] == [(c.id, c.state) for c in once.communicators]
    assert [f.rule for f in job.findings] == [f.rule for f in once.findings]


def test_two_copies_of_the_library_in_one_process_are_one_run() -> None:
    """A second copy bootstraps again while the first one goes on."""
    first = ONE_HOST.split(b"\n")
    second = started_again(ONE_HOST).split(b"\n")
    half = len(first) * 3 // 4
    mixed = [*first[:half], *(line for pair in zip(first[half:], second, strict=False) for line in pair)]
    job = nccl_inspect.read(b"\n".join([*mixed, *second[len(first) - half :]]))
    assert job.earlier_runs == []
    assert len(job.communicators) == 2


def test_pods_with_own_pid_numbers_on_one_host_are_told_apart_by_their_names() -> None:
    """With hostNetwork pods have the name of the node, and each counts its pids from 1."""
    pids = sorted(set(re.findall(rb"vm:(\d+):", ONE_HOST)))
    pods = {pid: b"[pod/llama-%d/main] " % (index // 4) for index, pid in enumerate(pids)}
    renamed = {pid: b"vm:%d:" % (20 + index % 4) for index, pid in enumerate(pids)}

    def moved(line: bytes) -> bytes:
        found = re.search(rb"vm:(\d+):", line)
        return pods[found[1]] + line.replace(found[0], renamed[found[1]]) if found else line

    job = nccl_inspect.read(b"\n".join(map(moved, ONE_HOST.split(b"\n"))))
    assert job.ranks_seen == list(range(8))
    assert job.processes == 8
    assert ways(job) == ways(nccl_inspect.read(ONE_HOST))


def test_files_of_two_runs_are_put_in_order_by_their_times(tmp_path: Path) -> None:
    later = started_again(TIMED).replace(b"2026-11-20 23:", b"2026-11-21 07:").replace(b"Channel 01", b"Channel 03")
    (tmp_path / "llama.log").write_bytes(later)
    (tmp_path / "llama.previous.log").write_bytes(TIMED)
    job = nccl_inspect.read(str(tmp_path))
    assert not job.jobs
    assert len(job.earlier_runs) == 1
    assert "llama.previous.log" in job.earlier_runs[0]


def test_files_of_different_hosts_without_times_are_not_ordered_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(ONE_HOST)
    (tmp_path / "b.log").write_bytes(started_again(ONE_HOST).replace(b"vm:", b"other:"))
    job = nccl_inspect.read([str(tmp_path / "a.log"), str(tmp_path / "b.log")])
    assert [one.name for one in job.jobs] == ["a", "b"]
    assert job.earlier_runs == []


def test_logs_of_two_hosts_put_one_behind_the_other_are_no_earlier_and_later_run() -> None:
    other = started_again(ONE_HOST).replace(b"vm:", b"other:")
    job = nccl_inspect.read(ONE_HOST + other)
    assert [one.hosts for one in job.jobs] == [["vm"], ["other"]]
    assert not job.earlier_runs
    ended = b"slurmstepd: error: *** JOB 4711 ON vm CANCELLED AT 2026-11-20T23:13:07 DUE TO PREEMPTION ***\n"
    assert len(nccl_inspect.read(ONE_HOST + ended + other).earlier_runs) == 1


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("2026-11-20 23:13:07.071868", "2026-11-20 23:13:07.071869"),
        ("2026-11-20T23:13:07Z", "2026-11-20T23:13:07.123456789Z"),
        ("2026-11-20T23:13:07+01:00", "2026-11-20T23:13:07Z"),
        ("1732143187", "1732143187.5"),
        ("Nov 20 23:13:07", "Nov 21 01:00:00"),
    ],
)
def test_time_stamps_are_comparable(earlier: str, later: str) -> None:
    before, after = moment(earlier), moment(later)
    assert before is not None and after is not None
    assert before.clock == after.clock
    assert before.seconds < after.seconds


@pytest.mark.parametrize("text", [None, "", "now", "23:13", "Nov 99 23:13:07"])
def test_what_is_no_time_is_no_moment(text: str | None) -> None:
    assert moment(text) is None


@settings(max_examples=15)
@given(st.sets(st.integers(0, 440), max_size=60), st.sampled_from([b"", b"0: ", b"[pod/llama-0/main] "]))
def test_lines_run_together_are_taken_apart(glued: set[int], envelope: bytes) -> None:
    lines = ONE_HOST.split(b"\n")
    glued = {index for index in glued if b" NCCL " in lines[index] and b" NCCL " in lines[index + 1]}
    log = b"".join(
        (b"" if index - 1 in glued else envelope) + line + (b"" if index in glued else b"\n")
        for index, line in enumerate(lines)
    )
    job, whole = nccl_inspect.read(log), nccl_inspect.read(ONE_HOST)
    assert [(p.src, p.dst, p.detail, p.channels) for p in job.paths] == [
        (p.src, p.dst, p.detail, p.channels) for p in whole.paths
    ]
    assert job.sources[0].damaged_lines == 0
    assert job.sources[0].typed_lines == whole.sources[0].typed_lines


def test_a_line_whose_half_is_missing_stays_damaged_and_is_listed() -> None:
    log = (
        ONE_HOST + b"vm:1401:1401 [2] NCCL INFO Channel 05/0 : 2[2] -> 3[3] via P2Pvm:1401:1401 [2] NCCL INFO Connec\n"
    )
    job = nccl_inspect.read(log)
    assert job.sources[0].damaged_lines == 1
    assert [line.line for line in job.damaged] == [ONE_HOST.count(b"\n") + 1]
    text = report.load("text").render(job, report.Style(verbose=True))
    assert "damaged lines that could not be repaired" in text
    assert "via P2Pvm:1401" in text


def test_other_text_glued_to_the_host_does_not_make_another_host() -> None:
    log = ONE_HOST.replace(
        b"\nvm:1403:1477 [4] NCCL INFO Channel 00", b" steps = 50vm:1403:1477 [4] NCCL INFO Channel 00"
    )
    assert log != ONE_HOST
    job, whole = nccl_inspect.read(log), nccl_inspect.read(ONE_HOST)
    assert [host.name for host in job.hosts] == ["vm"]
    assert [(p.src, p.dst, p.channels) for p in job.paths] == [(p.src, p.dst, p.channels) for p in whole.paths]


@pytest.mark.parametrize("in_one_file", [True, False], ids=["in one file", "beside it"])
def test_attempts_in_the_files_of_several_pods_are_told_apart(in_one_file: bool, tmp_path: Path) -> None:
    """Container restarts, a job that Slurm requeued: each pod's file has the lines of the failed attempt first."""
    failed = (SAMPLES / "peer-killed" / "job.log").read_bytes()
    again = started_again(failed)
    for pod, (earlier, later) in enumerate(zip(pods(failed), pods(again), strict=True)):
        if in_one_file:
            (tmp_path / f"llama-{pod}.log").write_bytes(earlier + later)
        else:
            (tmp_path / f"llama-{pod}.previous.log").write_bytes(earlier)
            (tmp_path / f"llama-{pod}.log").write_bytes(later)
    job, once = nccl_inspect.read(str(tmp_path)), nccl_inspect.read(again)
    assert len(job.earlier_runs) == 1
    assert ways(job) == ways(once)
    assert job.world_size == once.world_size


def test_an_end_that_was_collected_from_the_last_known_line_on_is_no_copy(tmp_path: Path) -> None:
    """``kubectl logs --since``: a line that comes once only is in both, and what follows is in the second one only."""
    lines = ONE_HOST.splitlines(keepends=True)
    first = next(at for at, line in enumerate(lines) if b"Init COMPLETE" in line)
    last = max(at for at, line in enumerate(lines) if b"Init COMPLETE" in line)
    (tmp_path / "a.log").write_bytes(b"".join(lines[: last + 1]))
    (tmp_path / "b.log").write_bytes(b"".join(lines[first:]))
    once, job = nccl_inspect.read(ONE_HOST), nccl_inspect.read(str(tmp_path))
    assert ways(job) == ways(once)
    assert [comm.state for comm in job.communicators] == [comm.state for comm in once.communicators]


def test_a_probe_of_one_rank_does_not_make_a_job_an_earlier_run() -> None:
    probe = b"".join(line for line in ONE_HOST.splitlines(keepends=True) if b" [0] NCCL INFO ncclCommInitRank" in line)
    probe = started_again(probe.replace(b"nranks 8", b"nranks 1").replace(b"vm:", b"vm:9"))
    job = nccl_inspect.read(ONE_HOST + probe)
    assert not job.earlier_runs
    assert ways(job) == ways(nccl_inspect.read(ONE_HOST))
