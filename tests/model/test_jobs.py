"""Several jobs in one input: told apart, each judged as if it were alone, and the worst of them told first."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain, combinations, zip_longest
from pathlib import Path

import pytest
import sample_data
from call_count import calls
from command_line import invoke
from jsonschema import Draft202012Validator

import nccl_inspect
from nccl_inspect import artifacts
from nccl_inspect.artifacts import owner
from nccl_inspect.artifacts.machine import Report
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.model.inventory import Artifact
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline import reading
from nccl_inspect.pipeline.reading import Judge, Options

SCHEMA = Path(nccl_inspect.__file__).parent / "schema" / "nccl-inspect-1.json"
HOSTS = re.compile(rb"(?m)^(?:\S+ )?([A-Za-z0-9_.-]+):\d+:\d+ \[")
CAPTURES = (
    *("p2p-nvlink-8gpu", "peer-killed", "rank-missing-hang", "socket-2node-tp4-dp2", "v2.19.4-socket-2node"),
    *("v2.21.5-ipc", "v2.30.7-shm-4gpu", "v2.28.9-libfabric-2node", "efa-provider-missing-socket-fallback"),
)


def of(name: str, number: int = 0) -> bytes:
    """A capture, on hosts of its own."""
    (log,) = sample_data.contents(name)
    for host in {found[1] for found in HOSTS.finditer(log)}:
        log = re.sub(rb"(?<![\w])%b(?![\w-])" % re.escape(host), b"%b-j%d" % (host, number), log)
    return log


def interleaved(*logs: bytes) -> bytes:
    """The lines of several logs, spread evenly."""
    rows = sorted(
        (
            (at / log.count(b"\n"), number, line)
            for number, log in enumerate(logs)
            for at, line in enumerate(log.splitlines(True))
        ),
        key=lambda row: row[:2],
    )
    return b"".join(line for _, _, line in rows)


def essence(job: Job) -> tuple[object, ...]:
    """What must not depend on other jobs: the verdict, the findings that are not about the log, the paths."""
    findings = sorted((one.rule, one.severity) for one in job.findings if one.rule != "lines-damaged")
    return job.verdict, findings, [(path.src, path.dst, path.detail, path.verdict) for path in job.paths]


def judged(log: bytes) -> list[Job]:
    """All jobs of a log."""
    found: list[Job] = []
    Judge(Options()).worst(reading.fold(log), found.append)
    return found


def small(number: int, hosts: int = 2, on_each: int = 2, *, ends: bool = True) -> list[bytes]:
    """A job of a few ranks on hosts of its own."""
    size = hosts * on_each

    def line(rank: int, text: str) -> bytes:
        head = f"node-{number * hosts + rank // on_each:05d}:{1000 + rank}:{1000 + rank} [{rank % on_each}]"
        return f"{head} NCCL INFO {text}\n".encode()

    def init(rank: int, phase: str) -> bytes:
        local, comm = rank % on_each, f"0x55{number:06x}{rank:04x}"
        ids = f"cudaDev {local} nvmlDev {local} busId {(local + 6) * 16:x} commId {0xABC0000000000000 + number:#x}"
        return line(rank, f"ncclCommInitRankConfig comm {comm} rank {rank} nranks {size} {ids} - Init {phase}")

    lines = [line(0, "NCCL version 2.27.3+cuda13.0")]
    for rank in range(size):
        lines += [line(rank, "Bootstrap: Using eth0:10.0.0.1<0>"), line(rank, "Using network Socket")]
    lines += [init(rank, "START") for rank in range(size)]
    if ends:
        lines += [init(rank, "COMPLETE") for rank in range(size)]
        for rank in range(size):
            to = (rank + 1) % size
            way = "via P2P/CUMEM" if rank // on_each == to // on_each else "[send] via NET/Socket/0"
            lines.append(line(rank, f"Channel 00/0 : {rank}[{rank % on_each}] -> {to}[{to % on_each}] {way}"))
    return lines


def mixed(jobs: list[list[bytes]]) -> bytes:
    """The lines of jobs that ran at once."""
    return b"".join(line for lines in zip_longest(*jobs, fillvalue=b"") for line in lines)


@pytest.mark.parametrize("names", list(combinations(CAPTURES, 2)), ids="+".join)
@pytest.mark.parametrize("how", ["joined", "joined the other way", "interleaved"])
def test_no_job_changes_another_one(names: tuple[str, str], how: str) -> None:
    one, other = of(names[0], 1), of(names[1], 2)
    log = {"joined": one + other, "joined the other way": other + one, "interleaved": interleaved(one, other)}[how]
    alone = [essence(job) for part in (one, other) for job in judged(part)]
    assert sorted(map(essence, judged(log)), key=str) == sorted(alone, key=str)


def test_two_steps_in_one_file_are_two_jobs_and_the_worst_leads() -> None:
    (failed,), (good,) = sample_data.contents("peer-killed"), sample_data.contents("p2p-nvlink-8gpu")
    for log in (failed + good, good + failed):
        job = nccl_inspect.read(log)
        assert [(one.verdict, one.ranks) for one in job.jobs] == [("failed", 4), ("ok", 8)]
        assert job.verdict == "failed"
        assert job.world_size == 4
        finding = job.jobs[0].finding
        assert finding is not None
        assert finding.rule == "peer-death"


@pytest.mark.parametrize("name", ["torch-device-assert", "torch-size-mismatch", "torch-watchdog-timeout"])
def test_the_end_of_a_step_that_aborts_its_communicators_is_not_that_of_the_step_before(name: str) -> None:
    good, failed = of("v2.30.7-shm-4gpu", 1), of(name, 2)
    before, after = judged(good + failed)
    assert essence(before) == essence(*judged(good))
    assert essence(after) == essence(*judged(failed))


def test_hundreds_of_jobs_at_once() -> None:
    jobs = [small(number, ends=number != 7) for number in range(100)]
    for log in (mixed(jobs), b"".join(chain.from_iterable(jobs))):
        job = nccl_inspect.read(log)
        assert len(job.jobs) == 100
        assert {one.ranks for one in job.jobs} == {4}
        assert {len(one.hosts) for one in job.jobs} == {2}
        assert [one.number for one in job.jobs if one.verdict == "unknown"] == [8]
        assert sum(one.detail is not None for one in job.jobs) == 3


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("ends", [True, False])
def test_the_work_grows_with_the_number_of_jobs(hosts: int, ends: bool) -> None:
    judge = Judge(Options())

    def work(number: int) -> int:
        fold = reading.fold(mixed([small(at, hosts, ends=ends) for at in range(number)]))
        return calls(lambda: judge.worst(fold))

    work(2)
    few, many = work(20), work(80)
    assert many < 5 * few


@pytest.mark.parametrize("name", ["{}.ibstat", "hosts/{}/ibstat"])
def test_the_work_grows_with_the_number_of_jobs_and_files_about_their_machines(name: str) -> None:
    judge = Judge(Options())

    def work(number: int) -> int:
        fold = reading.fold(mixed([small(at) for at in range(number)]))
        files = [name.format(f"node-{at:05d}") for at in range(2 * number)]
        beside = artifacts.NOTHING._replace(
            evidence=[Artifact(file, "ibstat output", Report(file, ()), reader="ibstat") for file in files]
        )
        assert all(entry.host in entry.name for entry in judge.worst(fold, beside=beside).artifacts if entry.host)
        return calls(lambda: judge.worst(fold, beside=beside))

    work(2)
    few, many = work(20), work(80)
    assert many < 5 * few


@pytest.mark.parametrize("name", ["{}.ibstat", "ibstat_{}.txt", "{}/ibstat", "hosts/{}/ibstat"])
def test_the_work_grows_with_the_number_of_machines_and_files_about_them(name: str) -> None:
    def work(number: int) -> int:
        job = Judge(Options())(reading.fold(b"".join(small(0, number, 1))))
        hosts = [host.name for host in job.hosts]
        beside = [
            Artifact(file, "ibstat output", Report(file, ()), reader="ibstat") for file in map(name.format, hosts)
        ]
        assert [entry.host for entry in owner.joined(beside, job)] == hosts
        return calls(lambda: owner.joined(beside, job))

    work(2)
    few, many = work(50), work(200)
    assert many < 6 * few


def test_a_folder_of_logs_is_told_by_its_files(tmp_path: Path) -> None:
    for name in CAPTURES:
        (tmp_path / f"{name}.log").write_bytes(sample_data.contents(name)[0])
    job = nccl_inspect.read(str(tmp_path))
    assert {one.name for one in job.jobs} == set(CAPTURES)
    assert all([host.name for host in one.detail.hosts] == one.hosts for one in job.jobs if one.detail)
    assert all(len(one.detail.sources) == 1 for one in job.jobs if one.detail)


def pieces() -> Iterator[tuple[str, bytes]]:
    """What is left of logs of one job with many communicators."""
    for name in ("socket-2node-tp4-dp2", "v2.19.4-socket-2node", "torch-mesh-2node", "v2.31.2-groups"):
        log = b"".join(sample_data.contents(name)) if (sample_data.FOLDER / name / "truth.json").exists() else b""
        lines = log.splitlines(keepends=True)
        for part in (3, 5, 7):
            yield f"{name} head {part}", b"".join(lines[: len(lines) * part // 8])
            yield f"{name} tail {part}", b"".join(lines[-len(lines) * part // 8 :])
        for word in (b"COMPLETE", b" via ", b"comm", b"rank 0"):
            yield f"{name} grep {word.decode()}", b"".join(line for line in lines if word in line)


@pytest.mark.parametrize("log", [pytest.param(log, id=name) for name, log in pieces() if b" NCCL " in log])
def test_pieces_of_one_job_are_one_job(log: bytes) -> None:
    assert nccl_inspect.read(log).jobs == []


@pytest.mark.parametrize("name", sample_data.names())
def test_a_sample_is_one_job(name: str) -> None:
    assert sample_data.job(name).jobs == []
    assert "jobs" not in sample_data.job(name).to_dict()


def test_groups_that_ranks_make_on_one_host_are_one_job() -> None:
    """Tensor parallelism over four GPUs each, without a communicator of all: as inference servers do it."""
    first = of("v2.21.5-ipc")
    second = re.sub(rb":(\d+):(\d+) \[(\d)\]", lambda m: b":9%b:9%b [%d]" % (m[1], m[2], int(m[3]) + 4), first)
    second = re.sub(rb"busId ([0-9a-f]+)", lambda m: b"busId %x" % (int(m[1], 16) + 0x40), second)
    second = re.sub(rb"(comm|commId) 0x(.)", rb"\1 0x7\2", second)
    assert nccl_inspect.read(interleaved(first, second)).jobs == []


def test_ranks_that_a_launcher_numbers_on_are_one_job() -> None:
    one, other = small(0, 1, 4), small(1, 1, 4)

    def labelled(lines: list[bytes], first: int) -> list[bytes]:
        return [b"%d: %b" % (first + int(re.findall(rb":100(\d):", line)[0]), line) for line in lines]

    assert len(nccl_inspect.read(mixed([labelled(one, 0), labelled(other, 0)])).jobs) == 2
    assert nccl_inspect.read(mixed([labelled(one, 0), labelled(other, 4)])).jobs == []


def failure(host: int, rank: int, pid: int) -> bytes:
    """What torchrun reports of a worker that failed."""
    return (
        f"  host      : node-{host:05d}\n  rank      : {rank} (local_rank: {rank % 4})\n  exitcode  : -6 (pid: {pid})\n"
    ).encode()


def test_groups_on_several_hosts_are_of_one_world_by_the_ranks_that_torchrun_names() -> None:
    """Communicators of all ranks were never made: each host has that of its own four."""
    log = mixed([small(0, 1, 4), small(1, 1, 4)])
    assert len(nccl_inspect.read(log).jobs) == 2
    assert len(nccl_inspect.read(log + failure(1, 3, 1003)).jobs) == 2  # a rank that each of them may have
    assert len(nccl_inspect.read(mixed([small(number, 1, 4) for number in range(3)]) + failure(1, 7, 9)).jobs) == 3
    job = nccl_inspect.read(log + failure(1, 7, 9))
    assert (job.jobs, job.rank_space) == ([], "communicator")  # whose rank that is nobody says


@pytest.mark.parametrize("rank", [3, 7])
def test_ranks_are_those_that_torchrun_names_where_that_leaves_one_place_for_each(rank: int) -> None:
    one, other = small(0, 1, 4), [line.replace(b":100", b":200") for line in small(1, 1, 4)]
    ends = failure(1, 7, 2003) if rank == 7 else failure(1, 7, 9) + failure(1, 3, 2003)
    job = nccl_inspect.read(mixed([one, other]) + ends)
    assert (job.jobs, job.rank_space, job.world_size) == ([], "global", 8)
    hosts = {host.name: host.ranks for host in job.hosts}
    first, last = ("node-00000", "node-00001") if rank == 7 else ("node-00001", "node-00000")
    assert hosts == {first: [0, 1, 2, 3], last: [4, 5, 6, 7]}


def test_jobs_of_which_only_communicators_are_logged_are_told_apart() -> None:
    logs = [[line for line in small(number) if b" Init " in line] for number in range(3)]
    assert [one.ranks for one in nccl_inspect.read(mixed(logs)).jobs] == [4, 4, 4]


def test_jobs_of_one_host_that_ran_at_once_may_have_been_meant_as_one() -> None:
    job = nccl_inspect.read(mixed([small(0, 1, 4), small(1, 1, 4)]))
    assert len(job.jobs) == 2
    assert any(question.rule == "separate-jobs" for question in job.not_judged)


def test_a_rank_that_never_joined_stays_with_its_job() -> None:
    """Three of four ranks met, the fourth began a communicator of its own."""
    (log,) = sample_data.contents("rank-missing-hang")
    alone = [line for line in log.splitlines(keepends=True) if b":5181:" in line or b" rank 3 " in line]
    pid = re.search(rb":(\d+):\d+ \[", alone[0])
    assert pid
    lost = re.sub(
        rb"commId 0x.",
        b"commId 0x7",
        b"".join(alone).replace(b":%b:" % pid[1], b":77:").replace(b" rank 3 ", b" rank 2 "),
    )
    assert nccl_inspect.read(interleaved(log, lost)).jobs == []


def started_again(log: bytes) -> bytes:
    return re.sub(rb"(comm|commId) 0x(.)", lambda found: found[1] + b" 0x" + (b"b" if found[2] == b"a" else b"a"), log)


def test_a_restart_is_a_run_of_its_job_and_can_be_asked_for(tmp_path: Path) -> None:
    (first,) = sample_data.contents("peer-killed")
    (tmp_path / "two.log").write_bytes(first + started_again(first))
    job = nccl_inspect.read(str(tmp_path / "two.log"))
    assert job.jobs == []
    assert len(job.earlier_runs) == 1
    assert job.earlier_verdicts == ["failed"]
    assert essence(nccl_inspect.read(str(tmp_path / "two.log"), run=1)) == essence(nccl_inspect.read(first))
    assert "FAILED (--run 1)" in invoke("summarize", str(tmp_path / "two.log")).stdout
    assert "--run 1" in invoke("paths", str(tmp_path / "two.log")).stderr
    with pytest.raises(NcclInspectError, match="no run 3: the job has 2 runs"):
        nccl_inspect.read(str(tmp_path / "two.log"), run=3)


def test_jobs_in_the_middle_keep_what_nobody_signs() -> None:
    """Until 2.21 the line with the release has no prefix; all jobs print the same one."""
    log = b"".join(of("v2.19.4-socket-2node", number) for number in range(4))
    assert [one.nccl_versions for one in nccl_inspect.read(log).jobs] == [["2.19.4+cuda13.0"]] * 4


@pytest.fixture
def two(tmp_path: Path) -> str:
    (failed,), (good,) = sample_data.contents("peer-killed"), sample_data.contents("p2p-nvlink-8gpu")
    (tmp_path / "two.log").write_bytes(failed + good)
    return str(tmp_path / "two.log")


def test_the_report_begins_with_how_many_there_are(two: str) -> None:
    lines = invoke("summarize", two).stdout.splitlines()
    assert lines[0] == "2 jobs: 1 failed, 1 ok"
    assert "job 1: FAILED: rank 3" in lines[1]
    assert invoke("summarize", two, "--job", "2").stdout.startswith("OK")
    assert invoke("summarize", two, "--job", "job 2").stdout.startswith("OK")
    for wanted in ("3", "nobody"):
        with pytest.raises(NcclInspectError, match=f"no job '{wanted}' among 2"):
            invoke("summarize", two, "--job", wanted)


@pytest.mark.parametrize("command", ["paths", "topology", "traffic"])
def test_commands_that_show_one_job_say_so(command: str, two: str) -> None:
    assert "the worst of 2 jobs: job 1; --job selects another" in invoke(command, two).stderr
    assert "of 2 jobs" not in invoke(command, two, "--job", "2").stderr


def test_gates_take_the_worst_job(two: str, tmp_path: Path) -> None:
    assert invoke("summarize", two, "--fail-on", "error").return_value == 1
    assert invoke("summarize", two, "--fail-on", "error", "--job", "2").return_value == 0
    policy = tmp_path / "policy.toml"
    assert invoke("check", two, "--learn", "--job", "2", "-o", str(policy)).return_value == 0
    assert invoke("check", two, "--policy", str(policy), "--job", "2").return_value == 0
    assert invoke("check", two, "--policy", str(policy)).return_value == 1
    with pytest.raises(NcclInspectError, match="holds 2 jobs"):
        invoke("check", two, "--learn")


def test_diff_chooses_in_each_input_that_holds_several(two: str, tmp_path: Path) -> None:
    (tmp_path / "one.log").write_bytes(sample_data.contents("p2p-nvlink-8gpu")[0])
    assert invoke("diff", str(tmp_path / "one.log"), two, "--job", "2", "--exit-code").return_value == 0
    assert invoke("diff", str(tmp_path / "one.log"), two, "--exit-code").return_value == 1


@pytest.mark.parametrize("form", ["text", "markdown", "html", "junit", "github", "sarif", "prometheus", "json"])
def test_every_format_tells_of_all_jobs(form: str, two: str) -> None:
    assert re.search("job 2|2 jobs: 1 failed", invoke("summarize", two, "--format", form).stdout)


def test_the_document_lists_the_jobs(two: str) -> None:
    document = json.loads(invoke("summarize", two, "--format", "json").stdout)
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(document)
    assert [(one["name"], one["verdict"], one["ranks"]) for one in document["jobs"]] == [
        ("job 1", "failed", 4),
        ("job 2", "ok", 8),
    ]
    assert document["jobs"][1]["first"]["line"] == 177
    assert document["verdict"] == "failed"


TABLE = b"""Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_10:23:45
  host      : somewhere
  rank      : 6 (local_rank: 6)
  exitcode  : 1 (pid: 777)
  error_file: <N/A>
"""


@pytest.mark.parametrize("end", [TABLE, b"Global rank 6 (PID 888) exited with code 1\n"], ids=["torchrun", "one line"])
def test_the_end_of_a_rank_is_that_of_a_job_with_so_many(end: bytes) -> None:
    """Nothing else says which of two jobs that run at once it is about, and the smaller one printed last."""
    large, few = small(1, 2, 4), small(9, 1, 4)
    for log in (mixed([large, few]) + few[-1] + end, mixed([few, large]) + few[-1] + end):
        jobs = {job.world_size: job for job in judged(log)}
        assert jobs[8].verdict == "failed"
        assert [one.ranks for one in jobs[8].findings if one.rule == "peer-death"] == [[6]]
        assert jobs[4].verdict != "failed"
    about_both = mixed([large, few]) + few[-1] + end.replace(b"6", b"2")
    assert [job.world_size for job in judged(about_both) if job.verdict == "failed"] == [4]


def test_files_in_which_processes_only_go_on_are_no_job(tmp_path: Path) -> None:
    """Neither where no production knows their lines, nor where another file has the same ones."""
    for number in (1, 2):
        lines = small(number)
        (tmp_path / f"a{number}-begin.log").write_bytes(b"".join(lines[:-1]))
        (tmp_path / f"z{number}-end.log").write_bytes(lines[-1])
    first, second = (small(number)[-1].partition(b" NCCL ")[0] for number in (1, 2))
    for name, heads, text in (
        ("both", (first, second), b"a new message"),
        ("first", (first, first), b"another one"),
        ("once-more", (first,), b"another one"),
        ("second", (second,), b"something else"),
    ):
        (tmp_path / f"m-{name}.log").write_bytes(b"".join(head + b" NCCL INFO " + text + b"\n" for head in heads))
    jobs = nccl_inspect.read(str(tmp_path)).jobs
    assert [one.ranks for one in jobs] == [4, 4]
    files = [[Path(source.name).stem for source in one.detail.sources] for one in jobs if one.detail]
    assert files == [["a1-begin", "m-both", "m-first", "z1-end"], ["a2-begin", "m-second", "z2-end"]]


def test_a_job_may_have_nothing_but_an_unknown_line_in_a_rotated_file(tmp_path: Path) -> None:
    for number in (0, 1):
        lines = small(number)
        unknown = b"%b NCCL INFO a message of release %d\n" % (lines[0].partition(b" NCCL ")[0], number)
        for part, text in enumerate((b"".join(lines[:-4]), unknown, lines[-4])):
            (tmp_path / f"job{number}-{part}.log").write_bytes(text)
    found: list[Job] = []
    Judge(Options()).worst(reading.fold(str(tmp_path)), found.append)
    assert [len(job.sources) for job in found if job.paths] == [3, 3]
