"""The first lines of every report: they fit ten lines, and all formats have the same."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import sample_data

import nccl_inspect
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style, head, load, text
from nccl_inspect.report.digest import folded
from nccl_inspect.report.head import labelled

_FAILED = "torch-watchdog-timeout"
RELEASES = ("2.27.3+cuda12.9", "2.21.5+cuda12.4")


def first_lines(job: Job, width: int = 100) -> list[str]:
    return list(text.headline(job, Style(width=width)))


def shown(job: Job, form: str, *, verbose: bool = False) -> str:
    return load(form).render(job, Style(verbose=verbose))


def misshapen(job: Job) -> Iterator[str]:
    """Yield what is wrong with the shape of the head of a job."""
    lines, narrow, first = first_lines(job), first_lines(job, 40), head.of(job)
    if len(lines) > 10 or not lines[0].startswith(job.verdict.upper()):
        yield f"{len(lines)} lines from {lines[0]}"
    if " ".join(narrow).split()[:3] != " ".join(lines).split()[:3]:
        yield "begins otherwise in a narrow terminal"
    if job.verdict in ("failed", "degraded") and not (first.do and first.since):
        yield "does not say since when, and what to do"
    if job.verdict == "ok" and labelled(first):
        yield "says more than that all is well"


def test_the_head_fits_ten_lines_and_any_width_and_says_what_to_do() -> None:
    wrong = [f"{name}: {what}" for name in sample_data.names() for what in misshapen(sample_data.job(name))]
    assert not wrong, "\n".join(wrong)


def test_the_culprit_has_its_process_and_the_step_names_it() -> None:
    first = head.of(sample_data.job(_FAILED))
    assert first.where.startswith("rank 3 on vm, pid 1349")
    assert [place.pid for place in first.places] == [1349]


def test_all_formats_have_the_same_head() -> None:
    job = sample_data.job(_FAILED)
    for form in ("text", "markdown", "html", "github", "junit"):
        page = " ".join(shown(job, form).split())
        for _, line in labelled(head.of(job)):
            assert line.split(";")[0].split("   #")[0] in page, form


def test_in_a_failed_job_what_does_not_explain_it_is_one_line_each() -> None:
    job = next(
        job
        for job in map(sample_data.job, sample_data.names())
        if job.verdict == "failed" and any(one.root and not one.fatal for one in job.findings)
    )
    under = folded(job.findings)
    others = [one for one in job.findings if one.rule not in under and not one.fatal]
    brief, whole = shown(job, "text"), shown(job, "text", verbose=True)
    for finding in others:
        assert f"{finding.severity.upper()} {finding.rule}: " in brief
        assert f"{finding.severity.upper()} {finding.rule} (" not in brief
        assert f"{finding.severity.upper()} {finding.rule} (" in whole
        assert finding.rule in shown(job, "markdown")


def test_the_first_finding_does_not_repeat_the_head() -> None:
    job = sample_data.job("v2.30.7-shm-4gpu")
    summary = job.findings[0].summary
    assert shown(job, "text").count(summary) == 1
    assert shown(job, "text", verbose=True).count(summary) == 2


def test_a_step_is_told_once_and_all_of_them_with_verbose() -> None:
    job = sample_data.job(_FAILED)
    steps = [step.split()[0] for finding in job.findings for step in finding.fix]
    whole = shown(job, "text", verbose=True)
    assert steps
    assert all(step in whole for step in steps)


def test_a_rank_that_is_to_blame_says_when_it_fell_silent() -> None:
    log = "".join(
        f"vm:{rank}:{rank} [{rank}] NCCL INFO ncclCommInitRank comm 0x{rank}1 rank {rank} nranks 2 cudaDev {rank} "
        f"nvmlDev {rank} busId {rank}0 commId 0x77 - Init {phase}\n"
        for phase in ("START", "COMPLETE")
        for rank in (1, 0)
    )
    lost = "vm:0:9 [0] misc/socket.cc:71 NCCL WARN socketProgress: Connection closed by remote peer\n"
    job = nccl_inspect.read((log + lost + lost).encode())
    assert "rank 1 silent since " in head.of(job).since


def test_a_log_that_is_written_now_says_how_old_its_last_line_is(tmp_path: Path) -> None:
    file = tmp_path / "job.log"

    def since(seconds: float, changed: float) -> str:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() - seconds))
        line = f"[{stamp}] vm:1:1 [0] misc/socket.cc:1 NCCL WARN Call to bind failed : Address already in use\n"
        file.write_text(
            f"[{stamp}] vm:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 "
            "busId 10 commId 0x77 - Init START\n" + line
        )
        os.utime(file, (time.time() - changed,) * 2)
        job = nccl_inspect.read(str(file))
        assert job.head is not None
        assert "ago)" not in job.head.since, "documents of one log must not differ"
        return head.of(job, is_now=True).since

    assert "(5 min ago)" in since(300, 300)
    assert "ago)" not in since(300, 30_000), "a clock that is not that of the file"
    assert "ago)" not in since(300_000, 300_000)


def lines_of(path: str) -> dict[str, str]:
    return dict(labelled(head.of(nccl_inspect.read(str(sample_data.FOLDER / path)))))


def test_where_is_not_that_of_an_effect() -> None:
    for name in ("operation-lazy", "operation-eager", "size-lazy", "type-eager", "skip-lazy"):
        told = lines_of(f"mesh/{name}")
        assert "rank 0 on " in told["where"]
        assert "rank 1 on " in told["where"]
        assert "not the other" not in told["where"]
        assert "silent since" not in told["since"]


STEPS = {
    "faults/master-unknown.log.gz": "nc -vz nohost.invalid 29902; getent hosts nohost.invalid   # ",
    "faults/gloo.log.gz": "Read the output of rank 1 above gloo.log.gz:154: ",
    "launchers/deepspeed-exit.log.gz": "Read the output above deepspeed-exit.log.gz:75: ",
    "torch-rank-killed": "dmesg -T | grep -iE 'oom|xid|killed process'   # on vm",
    "mesh/loop-eager": "py-spy dump --pid 1702   # rank 1, on vm; where is it now?",
    "mesh/leave-eager": "ps -o pid,stat,etime,cmd -p 2117   # T: stopped; Z or nothing: dead; on vm",
    "mesh/no-partner-lazy": "py-spy dump --pid 1687   # rank 1, on vm: what is it doing?",
    "launchers/ray-actor-killed.log.gz": "ls /tmp/ray/session_latest/logs/worker-*-23126.err   # rank 2; on vm: ",
    "launchers/composer-interrupted.log.gz": "Pass the complete output of all ranks",
}


def test_a_step_has_what_the_log_states() -> None:
    found = {name: lines_of(name)["do"] for name in STEPS}
    assert {name: do[: len(STEPS[name])] for name, do in found.items()} == STEPS


def test_a_step_of_a_log_without_a_name_is_that_of_a_file(tmp_path: Path) -> None:
    """Its lines are named ``<bytes>:298``, which is no placeholder."""
    (data,) = sample_data.contents("torch-device-assert")
    log = tmp_path / "job.log"
    log.write_bytes(b"".join(b"2026-11-20T23:00:00.%06dZ %b" % line for line in enumerate(data.splitlines(True))))
    named, nameless = (nccl_inspect.read(given).head for given in (str(log), log.read_bytes()))
    assert named and nameless and named.do.startswith("Read the output of rank 1 above job.log:298")
    assert nameless.do == named.do.replace("job.log", "<bytes>")


def test_a_rank_whose_program_speaks_has_lines() -> None:
    for name in ("oom-warn", "oom"):
        assert "no line in the log" not in lines_of(f"faults/{name}.log.gz")["where"]
    assert "no line in the log" in lines_of("rank-missing-hang")["where"]


def test_who_reports_first_is_not_the_culprit() -> None:
    said = [f"host-{rank}:7{rank}:7{rank} [0] NCCL INFO NCCL version {text}" for rank, text in enumerate(RELEASES)]
    said.append("host-0:70:77 [0] bootstrap.cc:322 NCCL WARN Bootstrap Root : rank 3 of 4 ranks has already checked in")
    first = head.of(nccl_inspect.read("\n".join(said).encode()))
    assert (first.rule, first.where, first.places) == ("version-mismatch", "2 hosts (host-0, host-1)", [])


def test_no_last_line_stands_before_the_first_error() -> None:
    inputs = [
        str(sample_data.FOLDER / "launchers" / name)
        for name in ("deepspeed-exception.log.gz", "deepspeed-killed.log.gz")
    ]
    since = head.of(nccl_inspect.read(inputs, job="deepspeed-exception")).since
    assert since == "first error deepspeed-exception.log.gz:45"
