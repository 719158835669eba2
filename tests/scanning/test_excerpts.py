"""What people pass on of a log: read in whatever form it comes, called an excerpt, and never a sound job.

Whole pastes are in `tests/labels/built_excerpts.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import cycle, product
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from repository import ROOT

import nccl_inspect
from nccl_inspect.errors import NoInputError
from nccl_inspect.grammar import engine
from nccl_inspect.ingest.lines.decoration import PASTE, is_elided
from nccl_inspect.model.job import Job
from nccl_inspect.scanning.excerpts import Excerpt
from nccl_inspect.scanning.found import Counts
from nccl_inspect.scanning.scanner import Scanner

GRAMMAR = engine.load_grammar()
SAMPLES = [
    sample
    for production in GRAMMAR.productions
    if not (production.foreign or production.follows or production.general)
    for sample in production.samples
    if sample.strip() == sample
]
HEAD = "node-a:12:13 [0] "


def escape_log(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


BARE: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "Windows": lambda text: text + "\r",
    "indented": lambda text: "\t   " + text + "  ",
    "bullet": lambda text: "- " + text,
    "dot": lambda text: "• " + text,
    "numbered": lambda text: "3. " + text,
    "line number": lambda text: "  12  " + text,
    "mail": lambda text: "> > " + text,
    "backticks": lambda text: f"`{text}`",
    "emphasis": lambda text: f"_{text}_",
    "bold": lambda text: f"**{text}**",
    "quotes": lambda text: f"\u201c{text}\u201d" if '"' not in text else text,
    "chat": lambda text: f"[10:32 AM] alice: {text}",
    "meeting": lambda text: f"Alice Smith (10:32): {text}",
    "table": lambda text: f"| 12:33:01 | {text} |",
    "added": lambda text: "+" + text,
    "prompt": lambda text: "$ " + text,
    "arrow": lambda text: "→ " + text,
    "elision before": lambda text: "... " + text,
    "break": lambda text: text + "<br>",
    "web": escape_log,
    "web blanks": lambda text: text.replace(" ", "\xa0"),
    "last error": lambda text: "Last error: " + text,
}
"""Forms in which a message comes without its prefix."""
PREFIXED: dict[str, Callable[[str], str]] = {
    "emphasis": lambda text: f"_{HEAD}NCCL INFO {text}_",
    "no host": lambda text: f"[0] NCCL INFO {text}",
    "old": lambda text: f"{HEAD}INFO {text}",
    "old warning": lambda text: f"{HEAD}misc/ibvwrap.cu:61 WARN {text}",
    "old place": lambda text: f"include/socket.h:344 WARN {text}",
    "no level": lambda text: f"NCCL INFO {text}",
}
"""Forms that leave something of the prefix."""
WRAPPED = [
    "misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-bVjkDp to 9637892 bytes",
    "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
    "NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 4 nics)",
]
FRAMES: dict[str, Callable[[str], str]] = {
    "loguru": lambda line: f"2024-05-17 10:11:12.345 | ERROR    | a.train:run:123 - {line}",
    "absl": lambda line: f"E0517 10:11:12.345678 139872 run.cc:123] {line}",
    "logging": lambda line: f"ERROR:root:{line}",
    "vLLM": lambda line: f"[rank3] ERROR 05-17 10:11:12 [worker.py:54] {line}",
    "grep": lambda line: f"train.log:123:{line}",
    "sign": lambda line: f"\u274c {line}",
    "speech": lambda line: f"Rank 3 says: `{line}`",
    "bold": lambda line: f"**{line}**",
    "cell": lambda line: f"<tr><td>3</td><td>{line}</td></tr>",
    "wide": lambda line: line.replace(" ", "  "),
    "escapes": lambda line: line.replace("_", "\\_").replace("[", "\\[").replace("]", "\\]"),
    "colours": lambda line: f"[31m{line}[0m",
    "escapes in letters": lambda line: f"^[[31m{line}^[[0m",
    "no line": lambda line: line.replace(".cc:88", ".cc"),
    "mark": lambda line: line.replace("NCCL WARN", "[NCCL WARN]"),
    "question": lambda line: f'Why do I get "{line}" on two nodes, any idea?',
    "link": lambda line: line.replace("transport/net.cc:88", "[transport/net.cc:88](https://example.com/net.cc#L88)"),
    "more follows": lambda line: f"{line} \u2026",
}
"""What loggers, terminals and people make of a line."""


def read_in(text: str) -> list[str]:
    """Return the productions that know the lines of a text as an excerpt."""
    readings = Excerpt(GRAMMAR).readings([line.encode() for line in text.split("\n")])
    return [said.parsed.production.name for one in readings for _, said in one.messages if said.parsed]


@given(st.sampled_from(SAMPLES), st.sampled_from([*BARE.values(), *PREFIXED.values()]))
def test_a_message_is_known_in_every_form(sample: str, form: Callable[[str], str]) -> None:
    known = read_in(sample)
    assume(len(known) == 1)
    assert read_in(form(sample)) == known


def test_nearly_every_message_is_known_without_its_prefix() -> None:
    some = SAMPLES[::40]
    assert sum(len(read_in(sample)) == 1 for sample in some) > 0.97 * len(some)


def test_a_warning_is_known_in_every_frame() -> None:
    wrong = []
    heads = ("", "node-a:12:13 [3] transport/net.cc:88 ")
    said = ("nvmlDeviceGetHandleByIndex(3) failed: GPU is lost", "Gadget 3 refused", "NET/IB : No device found.")
    for (name, frame), message, head in zip(2 * [*FRAMES.items()], cycle(said), cycle(heads), strict=False):
        notices = nccl_inspect.read(frame(f"{head}NCCL WARN {message}").encode()).notices
        hosts = [["node-a"] if head else ["? rank 3" if name == "vLLM" else "?"]]
        is_known = [one.message for one in notices] == [message] and [one.hosts[:1] for one in notices] == hosts
        if message.startswith("Gadget"):  # nobody knows where it ends
            is_known = any("Gadget" in one.message for one in notices)
        wrong += [] if is_known else [(name, head, notices)]
    assert not wrong, "\n".join(map(str, wrong))


def test_a_question_of_few_lines_may_mention_an_error() -> None:
    message = "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000"
    found = nccl_inspect.read(f"vLLM stops with {message} on two nodes, why?".encode()).findings
    assert [one.rule for one in found if one.severity == "error"] == ["duplicate-gpu"]
    for text in (f"If you see {message}, set CUDA_VISIBLE_DEVICES.", f"We look at {message} now.\n" * 9):
        with pytest.raises(NoInputError):
            nccl_inspect.read(text.encode())
    wrapped = b"RuntimeError: NCCL error in: /src/ProcessGroupNCCL.cpp:1275,\ninvalid usage, NCCL version 2.14.3\n"
    assert [one.rule for one in nccl_inspect.read(wrapped).findings] == ["invalid-usage"]
    cut = b"vm:100:140 [0] transport/net_ib.cc:2449 NCCL WARN NET/IB: Got completion from peer 10.0"
    assert [one.rule for one in nccl_inspect.read(cut).findings] == ["ib-completion-error"]  # no node named "IB:"


def test_a_line_that_was_broken_by_hand_is_one_again() -> None:
    wrong = []
    for line, margin, width in product(WRAPPED, ("", "    ", "> "), (40, 60, 72)):
        text = HEAD + line
        pieces = [text[at : at + width] for at in range(0, len(text), width)]
        broken = f"\n{margin}".join([("> " if margin == "> " else "") + pieces[0], *pieces[1:]])
        wrong += [] if read_in(broken) == read_in(text) != [] else [broken]
    assert not wrong, "\n\n".join(wrong)


ELISIONS = {
    **dict.fromkeys(("... 120 lines omitted ...", "[120 lines omitted]", "… 3,400 lines skipped …"), True),
    **dict.fromkeys(("--- 12 lines truncated ---", "> ... 12 more lines ...", "<lines removed>"), True),
    **dict.fromkeys(("step 3: lines omitted from the table", "NCCL INFO lines removed", "100 lines"), False),
}


def test_a_line_that_says_that_lines_were_left_out_makes_an_excerpt() -> None:
    assert {line: is_elided(f"one\n{line}\ntwo\n".encode()) for line in ELISIONS} == ELISIONS


DOCUMENTS = [
    *(file for file in ROOT.glob("*.md")),
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "docs" / "explanation").glob("*.md"),
    *(file for file in (ROOT / "docs" / "howto").glob("*.md") if file.name != "assistants.md"),
    *sorted((ROOT / "nccl_inspect").rglob("*.py"))[::12],
]


def alarms(text: bytes) -> list[str]:
    """Return what is found in a text only because it is read as an excerpt, but for what harms nobody."""
    lines = text.split(b"\n")
    known: set[int] = set()
    Scanner(GRAMMAR).scan(lines, Counts(), lambda number, _origin, said: known.add(number))
    found = [said for one in Excerpt(GRAMMAR).readings(lines, known) for _, said in one.messages]
    return [said.message.decode() for said in found if said.level == "WARN"]


@pytest.mark.slow
def test_documents_and_programs_raise_nothing() -> None:
    wrong = {file.relative_to(ROOT).as_posix(): alarms(file.read_bytes()) for file in DOCUMENTS}
    assert not {file: found for file, found in wrong.items() if found}


def test_a_program_is_not_read_as_an_excerpt(tmp_path: Path) -> None:
    for name, is_read in (("net.py", False), ("net.grammar", False), ("net.md", True)):
        (tmp_path / name).write_text("Using network Socket\n")
        if is_read:
            assert nccl_inspect.read(tmp_path / name).excerpt
        else:
            with pytest.raises(NoInputError):
                nccl_inspect.read(tmp_path / name)


def test_a_long_text_is_no_excerpt() -> None:
    with pytest.raises(NoInputError, match="no NCCL line"):
        nccl_inspect.read(b"Using network Socket\n" * (PASTE // 20 + 1))


# --- lines that were cut: what they lack is no evidence


_SAMPLES = ROOT / "sample_logs"
_HEALTHY = ("p2p-nvlink-8gpu", "p2p-direct-threads", "measured/default", "v2.32.3-diagnostics", "torn-p2p-8gpu")
_WIDTHS = (80, 90, 100, 110, 120, 132)
_MAY_SHOW = {"lines-cut-off", "log-incomplete", "lines-damaged", "gin-failed"}
"""GIN's warning is only a possible fault in the whole log, too."""


def _read_cut(log: bytes, width: int) -> Job:
    """Return the job of a log whose lines are cut; its processes have ids of several lengths."""
    ids = sorted(set(re.findall(rb":(\d+):\d+ \[", log)))
    longer = {name: name * (1 + at % 3) for at, name in enumerate(ids)}
    log = re.sub(
        rb":(\d+):(\d+) \[", lambda found: b":%b:%b [" % (longer[found[1]], longer.get(found[2], bytes(found[2]))), log
    )
    return nccl_inspect.read(b"\n".join(line[:width] for line in log.split(b"\n")))


def test_healthy_job_is_neither_ok_nor_accused() -> None:
    """The verdict is unknown, and no rank has a fault, wherever the lines are cut."""
    problems = []
    for sample in _HEALTHY:
        log = (_SAMPLES / sample / "job.log").read_bytes()
        for width in _WIDTHS:
            job = _read_cut(log, width)
            shown = {finding.rule for finding in job.findings if finding.confidence != "possible"} - _MAY_SHOW
            shown |= {finding.rule for finding in job.findings if finding.severity == "error"}
            if job.verdict != "unknown" or shown or not job.excerpt:
                problems.append(f"{sample} at {width}: {job.verdict} {shown}")
    assert not problems, "\n".join(problems)


def test_setting_is_that_of_one_rank() -> None:
    """The ranks that a process has in its smaller communicators are none of the job."""
    log = (_SAMPLES / "socket-2node-tp4-dp2/job.log").read_bytes()
    start = next(re.finditer(rb"^(\S+ \[\d\] NCCL INFO )ncclCommInitRank\w* comm \S+ rank 6 nranks 8", log, re.M))
    log = log[: start.start()] + start[1] + b"NCCL_ALGO set by environment to Ring\n" + log[start.start() :]
    problems = []
    for width in _WIDTHS:
        settings = [setting for setting in _read_cut(log, width).environment if setting.name == "NCCL_ALGO"]
        problems += [f"{width}: {setting.ranks}" for setting in settings if setting.ranks not in ([], [6])]
    assert not problems, "\n".join(problems)
