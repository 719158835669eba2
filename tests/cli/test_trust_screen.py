"""What a new user sees first: the head, the brief form, help by rule, colors, and how it all fits a screen."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from repository import ROOT

SAMPLES = ROOT / "sample_logs"
LOGS = "efa-provider-missing-socket-fallback peer-killed rank-missing-hang socket-2node-tp4-dp2 timestamps"
FILES = [*(SAMPLES / name / "job.log" for name in LOGS.split()), SAMPLES / "faults" / "assert.log.gz"]
CLUES = "node-1:1:2 [3] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA {0} 'mlx5_{0}'\n"
"""Lines of a log whose brief form has more to say than fits ten lines."""


@pytest.fixture(autouse=True)
def _set_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a terminal of 80 columns, whatever the environment of the tests says."""
    for name in ("FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")


def test_the_first_screen_agrees_with_the_findings_below_it(tmp_path: Path) -> None:
    wrong: list[object] = []
    (tmp_path / "job.log").write_text("".join(map(CLUES.format, range(3))))
    for log in (*FILES, tmp_path / "job.log"):
        job = json.loads(invoke("summarize", str(log), "--format", "json").stdout)
        shown = invoke("summarize", str(log)).stdout.splitlines()
        brief = invoke("summarize", str(log), "--brief").stdout.splitlines()
        findings = {finding["rule"]: finding for finding in job["findings"]}
        if not findings:
            continue
        lead = job["findings"][0]
        rule = next((line.split()[3] for line in brief if line.startswith("more: nccl-inspect explain")), "")
        lines = {f"{Path(line['source']).name}:{line['line']}" for line in findings[rule]["evidence"]}
        quoted = [line.split(": ")[1] for line in brief if line.startswith("evidence: ")]
        whole = [
            line for line in shown if line.startswith("  evidence") or re.match(r" {12}(job|assert)\.log\S*:", line)
        ]
        sound = {
            "do is the first fix": job["head"]["do"] == lead["fix"][0] and f"fix: {lead['fix'][0]}" in brief,
            "evidence shows the cause": quoted and lines.issuperset(quoted),
            "more names the cause": len(brief) <= 10 and (rule == lead["rule"] or rule in lead["because"]),
            "a finding fits a screen": len(findings) > 1 or len(shown) <= 30,
            "evidence takes a line each": whole and all(len(line) <= 80 for line in whole),
            "several are many": not re.search(r"ranks [\d,-]+ was ", "".join(brief)),
            "names are ranges": not re.search(r"-0, \S+-1, \S+-2, … \d+ more", "".join((*shown, *brief))),
        }
        wrong += [(log, what, brief) for what, is_so in sound.items() if not is_so]
    assert not wrong


def test_the_times_of_a_collector_leave_room_for_the_line(tmp_path: Path) -> None:
    log = tmp_path / "a-log-with-a-long-name.log"
    lines = (SAMPLES / "peer-killed" / "job.log").read_text().splitlines()
    log.write_text("".join(f"2026-11-20T23:15:18.123456789Z {line}\n" for line in lines))
    shown = " ".join(invoke("summarize", str(log)).stdout.split())
    since = shown[shown.index("since") : shown.index(" do ")]
    assert since.count(f"{log.name}:") == 2, since  # the first error stands in the story
    assert "last line 2026-11-20 23:15:18Z" in since


def test_terminal_manners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = str(SAMPLES / "p2p-nvlink-8gpu" / "job.log")
    colored = {}
    for variables in ("", "FORCE_COLOR=1", "CLICOLOR_FORCE=1", "FORCE_COLOR=0", "FORCE_COLOR=1 NO_COLOR=1"):
        with monkeypatch.context() as patch:
            for name, _, value in (variable.partition("=") for variable in variables.split()):
                patch.setenv(name, value)
            colored[variables] = "\x1b[" in invoke(log).stdout
    assert [name for name, is_so in colored.items() if is_so] == ["FORCE_COLOR=1", "CLICOLOR_FORCE=1"]
    notes = re.findall(r"^    \^ .*", invoke("annotate", log).stdout, re.MULTILINE)
    assert len(notes) == len(set(notes)) > 10
    width = [len(line) for line in invoke("paths", log, "--matrix", "--by", "host").stdout.splitlines()]
    assert max(width) <= 80


def test_parquet_has_the_columns_that_the_log_fills(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    log = str(SAMPLES / "p2p-nvlink-8gpu" / "job.log")
    invoke("events", log, "-o", str(tmp_path / "some.parquet"))
    invoke("events", log, "--all-columns", "-o", str(tmp_path / "all.parquet"))
    some, everything = (parquet.read_table(tmp_path / f"{name}.parquet") for name in ("some", "all"))
    assert some.num_columns < everything.num_columns
    assert some.equals(everything.select(some.column_names))


def test_the_page_counts_its_cards_and_marks_what_is_nested(tmp_path: Path) -> None:
    wrong: list[object] = []
    for log in FILES:
        invoke("summarize", str(log), "-o", str(tmp_path / "page.html"))
        page = (tmp_path / "page.html").read_text()
        counted = re.search(r'id="findings-head">Findings <span class="count">([^<]*)', page)
        counts = re.findall(r"(\d+) (error|warning|info|nested)", counted[1] if counted else "")
        numbers = {kind: int(number) for number, kind in counts}
        cards = {
            kind: len(re.findall(rf'<article class="finding {kind}"', page)) for kind in ("error", "warning", "info")
        }
        cards["nested"] = len(
            re.findall(r'<span class="who">nested</span> <span class="relation">(?:because|effect)</span>', page)
        )
        if {kind: number for kind, number in cards.items() if number} != numbers:
            wrong.append((log, numbers, cards))
    assert not wrong


@pytest.mark.slow
def test_names_stay_whole_on_a_phone(tmp_path: Path, browser: Any) -> None:
    invoke("summarize", str(SAMPLES / "peer-killed" / "job.log"), "-o", str(tmp_path / "page.html"))
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto((tmp_path / "page.html").as_uri())
    names = page.locator("dd .name, h1 .name, h3 .name")
    broken = names.evaluate_all("names => names.filter(n => n.getClientRects().length > 1).map(n => n.textContent)")
    assert "--previous" in names.all_text_contents()
    assert not broken
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate("(e => e.scrollWidth <= e.clientWidth)(document.querySelector('table').parentElement)")
