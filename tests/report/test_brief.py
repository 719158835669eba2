"""What is sent to a colleague: ten lines at most, each complete, in text and Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import sample_data
from command_line import invoke

from nccl_inspect.model.job import Job
from nccl_inspect.report import brief


def labels(text: str) -> list[str]:
    return [line.partition(": ")[0] for line in text.splitlines()[1:]]


def misshapen(job: Job) -> Iterator[str]:
    text = brief.render(job)
    if len(text.splitlines()) > brief.MAX_LINES:
        yield "too long"
    if not text.startswith((f"{job.verdict.upper()}:", f"{job.verdict.upper()}, ", "WAITING")):
        yield "begins without the verdict"
    found = labels(text)
    if job.verdict in ("failed", "degraded") and (not {"fix", "evidence"} & set(found) or found.count("evidence") > 3):
        yield f"a fault with {found}"
    if job.verdict == "ok" and found != ["job", "paths"]:
        yield f"what is right with {found}"
    marked = [line for line in brief.render(job, "markdown").splitlines() if line]
    if len(marked) != len(text.splitlines()) or not all(line.startswith(("**", "- **")) for line in marked):
        yield "other lines in Markdown"


@sample_data.one_or_all("peer-killed", "p2p-nvlink-8gpu", "v2.30.7-shm-4gpu")
def test_it_fits_ten_lines_and_begins_with_the_verdict(names: tuple[str, ...]) -> None:
    wrong = [f"{name}: {what}" for name in names for what in misshapen(sample_data.job(name))]
    assert not wrong, "\n".join(wrong)


def test_the_suffix_of_the_file_names_the_format_of_a_brief(tmp_path: Path) -> None:
    log = str(sample_data.files("peer-killed")[0])
    invoke("summarize", log, "--brief", "-o", str(tmp_path / "brief.md"))
    assert (tmp_path / "brief.md").read_text(encoding="utf-8").startswith("**FAILED: rank 3")
