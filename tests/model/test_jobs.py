"""Several jobs, and several runs of one, in one input: none changes another, and commands say which one they show.

What is one job and what are several, which run is judged and what is a copy is in `tests/labels/built_model.toml`.
"""

from __future__ import annotations

import copy
import gzip
import json
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from itertools import chain, combinations, cycle, pairwise, product, zip_longest
from pathlib import Path

import pytest
import sample_data
from call_count import calls
from few_examples import FEW
from hypothesis import given
from hypothesis import strategies as st

import nccl_inspect
from nccl_inspect import artifacts
from nccl_inspect.artifacts import joining
from nccl_inspect.artifacts.tools import Report
from nccl_inspect.model.inventory import Artifact
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline import reading
from nccl_inspect.pipeline.reading import Judge, Options
from nccl_inspect.util.times import moment, show_time

HOSTS = re.compile(rb"(?m)^(?:\S+ )?([A-Za-z0-9_.-]+):\d+:\d+ \[")
CAPTURES = (
    *("p2p-nvlink-8gpu", "peer-killed", "rank-missing-hang", "socket-2node-tp4-dp2", "v2.19.4-socket-2node"),
    *("v2.21.5-ipc", "v2.30.7-shm-4gpu", "v2.28.9-libfabric-2node", "efa-provider-missing-socket-fallback"),
)


def make_job(name: str, number: int = 0) -> bytes:
    """Return a capture, on hosts of its own."""
    (log,) = sample_data.contents(name)
    for host in {found[1] for found in HOSTS.finditer(log)}:
        log = re.sub(rb"(?<![\w])%b(?![\w-])" % re.escape(host), b"%b-j%d" % (host, number), log)
    return log


def interleave(*logs: bytes) -> bytes:
    """Return the lines of several logs, spread evenly."""
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
    """Return what must not depend on other jobs: the verdict, the findings that are not about the log, the paths."""
    findings = sorted((one.rule, one.severity) for one in job.findings if one.rule != "lines-damaged")
    return job.verdict, findings, [(path.src, path.dst, path.detail, path.verdict) for path in job.paths]


def judge_lines(log: bytes | str) -> list[Job]:
    found: list[Job] = []
    Judge(Options()).find_job(reading.fold(log), found.append)
    return found


def small(number: int, hosts: int = 2, on_each: int = 2, *, ends: bool = True) -> list[bytes]:
    """Return a job of a few ranks on hosts of its own."""
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


def mix_logs(jobs: list[list[bytes]]) -> bytes:
    """Return the lines of jobs that ran at once."""
    return b"".join(line for lines in zip_longest(*jobs, fillvalue=b"") for line in lines)


def change_names(names: tuple[str, str], hows: Sequence[str]) -> Iterator[str]:
    """Yield how two captures must not be put into one log: one of their jobs is judged otherwise than alone."""
    one, other = make_job(names[0], 1), make_job(names[1], 2)
    alone = sorted((essence(job) for part in (one, other) for job in judge_lines(part)), key=str)
    logs = {"joined": one + other, "joined the other way": other + one, "interleaved": interleave(one, other)}
    for how in hows:
        if sorted(map(essence, judge_lines(logs[how])), key=str) != alone:
            yield f"{names[0]} and {names[1]} {how}"


HOWS = ("joined", "joined the other way", "interleaved")


def test_no_job_changes_another_one() -> None:
    pairs = zip(pairwise(CAPTURES[:4]), cycle(HOWS), strict=False)
    wrong = [one for names, how in pairs for one in change_names(names, [how])]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_no_job_changes_any_other_one() -> None:
    wrong = [one for names in combinations(CAPTURES, 2) for one in change_names(names, HOWS)]
    assert not wrong, "\n".join(wrong)


REPEATED = ("group-of-some.log.gz", "host-lost", "hosts-lost", "net-cut", "objects-differ", "oom.log.gz")
"""Recorded faults, of jobs that somebody starts again."""


def test_a_job_that_works_below_its_failed_first_run_is_judged_as_alone() -> None:
    wrong = []
    for name in REPEATED:
        place = Path("sample_logs/faults", name)
        files = sorted(place.glob("*.gz")) if place.is_dir() else [place]
        log = b"".join(gzip.decompress(file.read_bytes()) for file in files)
        hosts = sorted({found[1] for found in HOSTS.finditer(log)})
        for number, host in enumerate(hosts):
            log = re.sub(rb"(?<![\w])%b(?![\w-])" % re.escape(host), b"node-%05d" % number, log)
        release = re.search(rb"NCCL version (\S+)", log)
        assert release
        again = b"".join(small(0, len(hosts))).replace(b"2.27.3+cuda13.0", release[1]) + b"step 1 loss 2.3\n"
        if essence(nccl_inspect.read(log + again)) != essence(nccl_inspect.read(again)):
            wrong.append(name)
    assert not wrong


def test_the_end_of_a_step_that_aborts_its_communicators_is_not_that_of_the_step_before() -> None:
    good = make_job("v2.30.7-shm-4gpu", 1)
    for name in ("torch-device-assert", "torch-size-mismatch", "torch-watchdog-timeout"):
        failed = make_job(name, 2)
        before, after = judge_lines(good + failed)
        assert essence(before) == essence(*judge_lines(good)), name
        assert essence(after) == essence(*judge_lines(failed)), name


def test_many_jobs_at_once() -> None:
    jobs = [small(number, ends=number != 7) for number in range(30)]
    for log in (mix_logs(jobs), b"".join(chain.from_iterable(jobs))):
        job = nccl_inspect.read(log)
        assert len(job.jobs) == 30
        assert {(one.ranks, len(one.hosts)) for one in job.jobs} == {(4, 2)}
        assert [one.number for one in job.jobs if one.verdict == "unknown"] == [8]
        assert sum(one.detail is not None for one in job.jobs) == 3


def test_a_job_that_starts_again_keeps_half_of_its_hosts() -> None:
    first = b"".join(small(0))
    for replaced, jobs in (((b"node-00001",), 1), ((b"node-00000", b"node-00001"), 2)):
        again = first.replace(b"0xabc0000000000000", b"0xabc0000000000009")
        for host in replaced:
            again = again.replace(host, host.replace(b"node-0000", b"node-0070"))
        assert len(judge_lines(first + again)) == jobs, replaced


def split_by_machine(number: int, name: str, many_jobs: bool) -> Callable[[], object]:
    """Return the work to join files with the machines of many jobs, or of one."""
    lines = mix_logs([small(at) for at in range(number)]) if many_jobs else b"".join(small(0, 2 * number, 1))
    fold = reading.fold(lines)
    files = [name.format(f"node-{at:05d}") for at in range(2 * number)]
    evidence = [Artifact(file, "ibstat output", Report(file, ()), reader="ibstat") for file in files]
    if not many_jobs:
        job = Judge(Options())(fold)
        assert [entry.host for entry in joining.join_hosts(evidence, job)] == [host.name for host in job.hosts]
        return lambda: joining.join_hosts(evidence, job)
    beside = artifacts.NOTHING._replace(evidence=evidence)
    return lambda: Judge(Options()).find_job(fold, beside=beside)


@pytest.mark.slow
def test_the_work_grows_with_the_number_of_machines() -> None:
    split_by_machine(2, "{}.ibstat", True)()  # loads what is loaded once
    wrong = []
    for name, many_jobs in product(("{}.ibstat", "{}/ibstat", "hosts/{}/ibstat"), (True, False)):
        few, many = (calls(split_by_machine(number, name, many_jobs)) for number in (20, 80))
        if many > 6 * few:
            wrong.append(f"{name} of {'many jobs' if many_jobs else 'one job'}: {few} calls for 20, {many} for 80")
    assert not wrong, "\n".join(wrong)


def test_a_folder_of_logs_is_told_by_its_files(tmp_path: Path) -> None:
    for name in CAPTURES:
        (tmp_path / f"{name}.log").write_bytes(sample_data.contents(name)[0])
    job = nccl_inspect.read(str(tmp_path))
    assert {one.name for one in job.jobs} == set(CAPTURES)
    assert all([host.name for host in one.detail.hosts] == one.hosts for one in job.jobs if one.detail)
    assert all(len(one.detail.sources) == 1 for one in job.jobs if one.detail)


def test_a_job_may_have_nothing_but_an_unknown_line_in_a_rotated_file(tmp_path: Path) -> None:
    for number in (0, 1):
        lines = small(number)
        unknown = b"%b NCCL INFO a message of release %d\n" % (lines[0].partition(b" NCCL ")[0], number)
        for part, text in enumerate((b"".join(lines[:-4]), unknown, lines[-4])):
            (tmp_path / f"job{number}-{part}.log").write_bytes(text)
    assert [len(job.sources) for job in judge_lines(str(tmp_path)) if job.paths] == [3, 3]


def test_a_job_has_the_source_in_which_a_launcher_names_its_host(tmp_path: Path) -> None:
    hosts = [small(number)[0].partition(b":")[0] for number in (0, 1)]
    end = b"slurmstepd: error: *** STEP 7.0 ON %b CANCELLED AT 2026-11-20T23:13:07 DUE TO TIME LIMIT ***\n" % hosts[0]
    for number, more in ((0, b""), (1, end)):
        (tmp_path / f"job{number}.log").write_bytes(b"".join(small(number)) + more)
    first, _ = judge_lines(str(tmp_path))
    cited = {line.source for notice in first.notices for line in notice.evidence}
    assert str(tmp_path / "job1.log") in cited <= {source.name for source in first.sources}
    assert [job.name for job in nccl_inspect.read(str(tmp_path)).jobs] == ["job0", "job1"]


@pytest.mark.parametrize(
    "change",
    [
        (b"2.27.3+cuda13.0", b"2.28.9+cuda13.0"),
        (b"BUFFSIZE set by environment to 1", b"BUFFSIZE set by environment to 2"),
    ],
)
def test_jobs_of_one_host_with_other_settings_are_several(change: tuple[bytes, bytes]) -> None:
    """One after the other on the same GPUs, or at once on others: the failure of one is not undone by the other."""
    setting = b"node-00000:1000:1000 [0] NCCL INFO NCCL_BUFFSIZE set by environment to 1.\n"
    one = [setting, *small(0, 1), b"node-00000:1000:1000 [0] NCCL WARN NET/IB : Got completion with error 12\n"]
    moved = [(b":100", b":200"), (b"abc0000000000000", b"abc0000000000007"), (b"0x55", b"0x66"), change]
    other = [reduce(lambda line, names: line.replace(*names), moved, line) for line in [setting, *small(0, 1)]]
    elsewhere = [re.sub(rb"busId (\d)", rb"busId 1\1", line) for line in other]
    for log in (b"".join(one + other), mix_logs([one, elsewhere])):
        assert len(judge_lines(log)) == 2


def test_a_file_of_one_job_that_lacks_ranks_is_its_own() -> None:
    """In the first, torchrun names the host of the ranks that did not reach NCCL; the second job printed from it."""
    files = [str(sample_data.FOLDER / "faults" / f"{name}.log.gz") for name in ("no-gpu", "node-lost")]
    job = nccl_inspect.read(files)
    assert [one.name for one in job.jobs] == ["no-gpu", "node-lost"]
    sources = [[source.name for source in one.detail.sources] for one in job.jobs if one.detail]
    assert sources == [[file] for file in files]


@FEW
@given(st.sets(st.integers(0, 440), max_size=60), st.sampled_from([b"", b"0: ", b"[pod/llama-0/main] "]))
def test_lines_run_together_are_taken_apart(glued: set[int], envelope: bytes) -> None:
    lines = sample_data.contents("p2p-nvlink-8gpu")[0].split(b"\n")
    glued = {index for index in glued if b" NCCL " in lines[index] and b" NCCL " in lines[index + 1]}
    log = b"".join(
        (b"" if index - 1 in glued else envelope) + line + (b"" if index in glued else b"\n")
        for index, line in enumerate(lines)
    )
    job, whole = nccl_inspect.read(log), sample_data.job("p2p-nvlink-8gpu")
    assert [(path.src, path.dst, path.detail, path.channels) for path in job.paths] == [
        (path.src, path.dst, path.detail, path.channels) for path in whole.paths
    ]
    assert (job.sources[0].damaged_lines, job.sources[0].typed_lines) == (0, whole.sources[0].typed_lines)


def test_time_stamps_are_comparable_and_seconds_from_a_start_are_no_date() -> None:
    for earlier, later in (
        ("2026-11-20 23:13:07.071868", "2026-11-20 23:13:07.071869"),
        ("2026-11-20T23:13:07Z", "2026-11-20T23:13:07.123456789Z"),
        ("2026-11-20T23:13:07+01:00", "2026-11-20T23:13:07Z"),
        ("1732143187", "1732143187.5"),
        ("Nov 20 23:13:07", "Nov 21 01:00:00"),
    ):
        before, after = moment(earlier), moment(later)
        assert before is not None and after is not None
        assert before.clock == after.clock
        assert before.seconds < after.seconds
    assert [moment(text) for text in (None, "", "now", "23:13", "Nov 99 23:13:07")] == [None] * 5
    assert [show_time(text) for text in ("47.5", "1700000000.25")] == ["48 s", "2023-11-14 22:13:20Z"]


_STALL = (
    "[0] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting "
    "for remainder of ranks for more than 60 seconds. \nMissing ranks:\n1: [allreduce.layer1.weight]\n"
)
_LOST = (
    "absl::Status: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n"
    "/job:jax_worker/replica:0/task:1\n"
)


@pytest.mark.parametrize(
    ("below", "summary"),
    [
        (_STALL, "ranks of Horovod wait for tensors that rank 1 did not submit"),
        (_LOST, "no answer any more from task 1 of jax_worker: the job ends"),
        ("step 1 loss 2.31\nlauncher: timeout, killing 2 ranks\n", ""),
    ],
)
def test_what_a_program_prints_below_the_last_line_of_a_run_is_of_that_run(below: str, summary: str) -> None:
    def begin(pid: int) -> str:
        head = [f"vm:{pid + rank}:{pid + rank} [{rank}] NCCL INFO" for rank in range(2)]
        end = f"nvmlDev 0 busId 1000 commId 0x88d1d362defe9{pid} - Init COMPLETE"
        return "\n".join(
            (
                *(f"{head[rank]} Bootstrap: Using eth0:10.0.0.1<0>" for rank in range(2)),
                *(f"{head[r]} ncclCommInitRank comm 0x55d{r} rank {r} nranks 2 cudaDev {r} {end}" for r in range(2)),
                *(
                    f"{head[rank]} Channel 00/0 : {rank}[{rank}] -> {1 - rank}[{1 - rank}] via P2P/CUMEM"
                    for rank in range(2)
                ),
                *(f"{head[rank]} Connected all rings" for rank in range(2)),
                "",
            )
        )

    log = f"{begin(100)}{below}***** Running training *****\n{begin(200)}step 1 loss 2.31\n".encode()
    assert [one.summary for one in nccl_inspect.read(log, run=1).findings] == [summary] * bool(summary)
    assert not nccl_inspect.read(log, run=2).findings


def test_the_newest_run_is_the_same_by_its_number() -> None:
    """What is told of it does not depend on whether somebody asks for it, as a success of its own does."""
    wrong = []
    for name in ("faults/restarted-nodes", "faults/restarted.log.gz", "measured-4/shm/nccl_tests.log.xz"):
        log = sample_data.FOLDER / name
        job = nccl_inspect.read(log)
        numbered = nccl_inspect.read(log, run=len(job.earlier_runs) + 1)
        wrong += [name] * (not job.earlier_runs or job.to_dict() != numbered.to_dict())
    assert not wrong


def test_a_process_without_a_communicator_is_of_a_job(tmp_path: Path) -> None:
    """It prints between two jobs, or in a file beside theirs, and nothing that it says is lost."""
    logs = [b"".join(small(number)) for number in range(2)]
    alone = b"other-host:9:9 [0] NCCL INFO cudaDriverVersion 12040\n"
    for name, log in zip("abc", (*logs, alone), strict=True):
        (tmp_path / f"{name}.log").write_bytes(log)
    between = [host.name for job in judge_lines(logs[0] + alone + logs[1]) for host in job.hosts]
    beside = [host for job in nccl_inspect.read(tmp_path).jobs for host in job.hosts]
    for hosts in (between, beside):
        assert sorted(hosts) == ["node-00000", "node-00001", "node-00002", "node-00003", "other-host"]


# --- Jobs are handed to other processes and threads, and copied: all of them say the same


def _show_job(job: Job) -> str:
    ends = [list(job.paths.end_lines(side)) for side in ("send", "receive")]
    return json.dumps(job.to_dict()) + repr((job.without_nvls, job.communicators, ends))


NAMES = ("peer-killed", "v2.19.4-socket-2node", "torch-watchdog-timeout", "p2p-nvlink-8gpu")


@pytest.mark.parametrize("names", [NAMES[::3], pytest.param(NAMES, marks=pytest.mark.slow)], ids=["few", "all"])
def test_copies_say_the_same(names: tuple[str, ...]) -> None:
    logs = [sample_data.contents(name)[0] for name in names]
    for log in (*logs[1:], logs[0] + logs[-1]):  # the last is the worst of two jobs
        jobs = [nccl_inspect.read(log) for _ in range(4)]
        copies = pickle.loads(pickle.dumps(jobs[0])), copy.deepcopy(jobs[1]), copy.copy(jobs[2]), replace(jobs[3])
        assert all(job == jobs[0] for job in (*copies, *jobs))
        shown = _show_job(jobs[0])
        assert all(_show_job(job) == shown for job in (*copies, *jobs))
        assert repr(jobs[0]).startswith("Job(")
    assert len(jobs[0].jobs) == 2


def test_other_paths_are_another_job() -> None:
    job, other = (nccl_inspect.read(sample_data.contents("socket-2node-tp4-dp2")[0]) for _ in range(2))
    other.paths[1].kind = other.paths[1].kind.with_fields(nic="mlx5_7")
    assert job.paths[:1] == other.paths[:1]
    assert job != other
    assert job.paths.take(1) == other.paths.take(1) != job.paths.take(2)
    assert job.paths != list(job.paths)


def test_a_job_does_not_need_its_log_any_more(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(sample_data.contents("socket-2node-tp4-dp2")[0])
    early, late = nccl_inspect.read(str(log)), nccl_inspect.read(str(log))
    shown = _show_job(early)
    log.unlink()
    assert _show_job(late) == shown


def test_threads_may_ask_at_once() -> None:
    data = sample_data.contents("socket-2node-tp4-dp2")[0]
    expected = _show_job(nccl_inspect.read(data))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        job = nccl_inspect.read(data)
        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(_show_job, [job] * 8)) == [expected] * 8
    finally:
        sys.setswitchinterval(interval)
