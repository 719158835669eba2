"""The first lines of every report: they fit ten lines, and all formats have the same."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import sample_data

import nccl_inspect
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style, head, load, story, text
from nccl_inspect.report.head import labelled

_FAILED = "torch-watchdog-timeout"


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


def test_all_formats_have_the_same_head() -> None:
    job = sample_data.job(_FAILED)
    for form in ("text", "markdown", "html", "github", "junit"):
        page = " ".join(shown(job, form).split())
        for _, line in labelled(head.of(job)):
            assert line.split(";")[0].split("   #")[0] in page, form


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


def test_a_step_of_a_log_without_a_name_is_that_of_a_file(tmp_path: Path) -> None:
    """Its lines are named ``<bytes>:298``, which is no placeholder."""
    (data,) = sample_data.contents("torch-device-assert")
    log = tmp_path / "job.log"
    log.write_bytes(b"".join(b"2026-11-20T23:00:00.%06dZ %b" % line for line in enumerate(data.splitlines(True))))
    named, nameless = (nccl_inspect.read(given).head for given in (str(log), log.read_bytes()))
    assert named and nameless and named.do.startswith("Read the output of rank 1 above job.log:298")
    assert nameless.do == named.do.replace("job.log", "<bytes>")


def test_no_last_line_stands_before_the_first_error() -> None:
    inputs = [
        str(sample_data.FOLDER / "launchers" / name)
        for name in ("deepspeed-exception.log.gz", "deepspeed-killed.log.gz")
    ]
    job = nccl_inspect.read(inputs, job="deepspeed-exception")
    assert head.of(job).since == ""
    assert story.lines(job)[0].where == "deepspeed-exception.log.gz:55"
