"""The first lines of every report: they fit ten lines, and all formats have the same; ten for a colleague."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import sample_data
from command_line import invoke
from hypothesis import given
from hypothesis import strategies as st
from tabulate import tabulate

import nccl_inspect
from nccl_inspect.judging.engine import list_rules
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style, brief, digest, load, text
from nccl_inspect.report.digest import label_lines
from nccl_inspect.report.tables import KIND_HEAD, align_table
from nccl_inspect.report.words import fit_page

_FAILED = "torch-watchdog-timeout"


def first_lines(job: Job, width: int = 100) -> list[str]:
    return list(text.headline(job, Style(width=width)))


def show_head(job: Job, form: str, *, verbose: bool = False) -> str:
    return str(load(form).render(job, Style(verbose=verbose)))


def misshapen(job: Job) -> Iterator[str]:
    lines, narrow, first = first_lines(job), first_lines(job, 40), digest.make_head(job)
    if len(lines) > 10 or not lines[0].startswith(job.verdict.upper()):
        yield f"{len(lines)} lines from {lines[0]}"
    if " ".join(narrow).split()[:3] != " ".join(lines).split()[:3]:
        yield "begins otherwise in a narrow terminal"
    if job.verdict in ("failed", "degraded") and not (first.do and first.since):
        yield "does not say since when, and what to do"
    if job.verdict == "ok" and label_lines(first):
        yield "says more than that all is well"


def test_the_head_fits_ten_lines_and_any_width_and_says_what_to_do() -> None:
    wrong = [f"{name}: {what}" for name in sample_data.names() for what in misshapen(sample_data.job(name))]
    assert not wrong, "\n".join(wrong)


def test_all_formats_have_the_same_head() -> None:
    job = sample_data.job(_FAILED)
    for form in ("text", "markdown", "html", "github", "junit"):
        page = " ".join(show_head(job, form).split())
        for _, line in label_lines(digest.make_head(job)):
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
        return digest.make_head(job, is_now=True).since

    assert "(5 min ago)" in since(300, 300)
    assert "ago)" not in since(300, 30_000), "a clock that is not that of the file"
    assert "ago)" not in since(300_000, 300_000)


def test_a_step_of_a_log_without_a_name_is_that_of_a_file(tmp_path: Path) -> None:
    """Its lines are named ``<bytes>:298``, which is no placeholder."""
    (data,) = sample_data.contents("torch-device-assert")
    log = tmp_path / "job.log"
    log.write_bytes(b"".join(b"2026-11-20T23:00:00.%06dZ %b" % line for line in enumerate(data.splitlines(True))))
    named, nameless = (nccl_inspect.read(given).head for given in (str(log), log.read_bytes()))
    assert named and nameless and named.do.startswith("Read the output of rank 1 above job.log:298")
    assert nameless.do == named.do.replace("job.log", "<bytes>")


def misshapen_brief(job: Job) -> Iterator[str]:
    text = brief.render(job)
    if len(text.splitlines()) > brief.MAX_LINES:
        yield "too long"
    if not text.startswith((f"{job.verdict.upper()}:", f"{job.verdict.upper()}, ", "WAITING")):
        yield "begins without the verdict"
    found = [line.partition(": ")[0] for line in text.splitlines()[1:]]
    if job.verdict in ("failed", "degraded") and (not {"fix", "evidence"} & set(found) or found.count("evidence") > 3):
        yield f"a fault with {found}"
    if job.verdict == "ok" and found != ["job", "paths"]:
        yield f"what is right with {found}"
    marked = [line for line in brief.render(job, "markdown").splitlines() if line]
    if len(marked) != len(text.splitlines()) or not all(line.startswith(("**", "- **")) for line in marked):
        yield "other lines in Markdown"


@sample_data.one_or_all("peer-killed", "p2p-nvlink-8gpu", "v2.30.7-shm-4gpu")
def test_it_fits_ten_lines_and_begins_with_the_verdict(names: tuple[str, ...]) -> None:
    wrong = [f"{name}: {what}" for name in names for what in misshapen_brief(sample_data.job(name))]
    assert not wrong, "\n".join(wrong)


def test_the_suffix_of_the_file_names_the_format_of_a_brief(tmp_path: Path) -> None:
    log = str(sample_data.files("peer-killed")[0])
    invoke("summarize", log, "--brief", "-o", str(tmp_path / "brief.md"))
    assert (tmp_path / "brief.md").read_text(encoding="utf-8").startswith("**FAILED: rank 3")


def test_the_lines_on_a_healthy_job_say_that_somebody_ended_it() -> None:
    (log,) = sample_data.contents("p2p-nvlink-8gpu")
    begin = log.partition(b"Destroy")[0].rpartition(b"\n")[0]
    end = b"slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-20T10:00:00 DUE TO TIME LIMIT ***"
    lines = brief.render(nccl_inspect.read(b"\n".join((begin, b"step 1 loss 2.31", end, b"")))).splitlines()
    first, second, *_ = lines
    assert first.startswith("OK: ")
    assert second == "note: the job was ended: its time limit was reached"


# --- Pages fit the terminal: paragraphs are wrapped anew, and nothing else is changed; tables are those of tabulate

PAGES = {entry.rule.name: entry.rule.page for entry in list_rules()}


def misfitting(text: str, width: int) -> Iterator[str]:
    """Yield what is wrong with a page in a terminal of some width."""
    page, found = fit_page(text, 120), fit_page(text, width)
    if found.split() != page.split() or _list_kept(found) != _list_kept(page):
        yield "other words, code, headings, tables or items"
    prose = re.sub(r"^ *```.*?^ *```$", "", found, flags=re.MULTILINE | re.DOTALL).split("\n")
    wide = [line for line in prose if len(line) > width and not line.startswith(("|", "#"))]
    yield from (f"could be broken: {line}" for line in wide if len(line.split()) > 2)


def test_the_pages_of_rules_fit() -> None:
    wrong = [
        f"{name}: {what}" for name, page in PAGES.items() for width in (40, 80) for what in misfitting(page, width)
    ]
    assert not wrong, "\n".join(wrong)


def _list_kept(page: str) -> list[str]:
    """Return code, headings, tables and the beginnings of items."""
    code = re.findall(r"^ *```.*?^ *```$", page, flags=re.MULTILINE | re.DOTALL)
    return code + re.findall(r"^ *(?:[|#].*|[-*] |\d+\. |$)", page, flags=re.MULTILINE)


def test_a_wide_terminal_gets_pages_as_they_are_but_for_what_the_tests_read() -> None:
    for name, whole in PAGES.items():
        page = whole.split("\n")
        changed = [line for line, known in zip(fit_page(whole, 120).split("\n"), page, strict=True) if line != known]
        assert len(changed) == sum(line.startswith("```log ") for line in page), name
        assert all(re.match("```text (raises a finding|no finding|cannot be judged)", line) for line in changed), name


CELLS = st.text(st.characters(categories=("L", "N", "P"), max_codepoint=0x2FF), min_size=1)


@given(st.lists(st.lists(CELLS, min_size=len(KIND_HEAD), max_size=len(KIND_HEAD)), min_size=1))
def test_a_table_is_as_tabulate_draws_it(rows: list[list[str]]) -> None:
    assert "\n".join(align_table(KIND_HEAD, rows)) == tabulate(
        rows, KIND_HEAD, tablefmt="simple", disable_numparse=True
    )
