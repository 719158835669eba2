"""What people pass on of a log: read in whatever form it comes, called an excerpt, and never a sound job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from call_count import calls_by_function
from command_line import invoke
from hypothesis import assume, given
from hypothesis import strategies as st
from repository import ROOT

import nccl_inspect
from nccl_inspect.errors import NoInputError
from nccl_inspect.grammar import engine
from nccl_inspect.ingest.lines.elisions import PASTE, is_elided
from nccl_inspect.report.digest import verdict_line
from nccl_inspect.scanning.counts import Counts
from nccl_inspect.scanning.excerpts import Excerpt
from nccl_inspect.scanning.scanner import Scanner

GRAMMAR = engine.shipped()
SAMPLES = [
    sample
    for production in GRAMMAR.productions
    if not (production.foreign or production.follows or production.general)
    for sample in production.samples
    if sample.strip() == sample and (parsed := GRAMMAR.parse(sample.encode())) and parsed.production is production
]
HEAD = "node-a:12:13 [0] "
PATHS = """\
node-a:12:13 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
node-a:12:14 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM
"""
COMPLETE = """\
node-a:12:13 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 60 - Init COMPLETE
node-a:12:14 [1] NCCL INFO comm 0x2 rank 1 nranks 2 cudaDev 1 busId 70 - Init COMPLETE
"""


def escaped(text: str) -> str:
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
    "web": escaped,
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
}
"""What loggers, terminals and people make of a line."""
PROSE = [
    "The log shows NCCL WARN messages when the network fails.",
    "grep 'NCCL WARN' job.log | sort",
    "`NCCL WARN` lines come last.",
    "I set NCCL_P2P_DISABLE=1 and saw Using network Socket in the log.",
    "Using network Socket is slower than using the EFA plugin, because it goes through the kernel.",
    "Using network namespaces is recommended.",
    "The log says NET/IB : No device found, which is normal there.",
    "NCCL_DEBUG=INFO",
    "export NCCL_IB_DISABLE=1",
    'WARN("NET/IB : No device found.");',
    'src/transport/net_ib.cc:61 WARN "NET/IB : %s"',
    "Set NCCL_SOCKET_IFNAME to the interface that both hosts share, as in NCCL_SOCKET_IFNAME=eth0.",
    "Does anybody know what 'Call to connect returned Connection refused' means?",
    "- the ring goes 0 -> 1 -> 2 via the NIC of the first GPU",
    "Failed to initialize NET plugin IB is printed where there is no such card.",
    "Error: the network of this cluster cannot be found in the documentation.",
    "epoch 3: loss 2.31, rank 0 of 8, 12 samples/s",
]


def read_in(text: str) -> list[str]:
    """The productions that know the lines of a text as an excerpt."""
    readings = Excerpt(GRAMMAR).readings([line.encode() for line in text.split("\n")])
    return [said.parsed.production.name for one in readings for _, said in one.messages if said.parsed]


@given(st.sampled_from(SAMPLES), st.sampled_from(sorted(BARE)))
def test_a_message_is_known_in_every_form(sample: str, form: str) -> None:
    known = read_in(sample)
    assume(len(known) == 1)
    assert read_in(BARE[form](sample)) == known


def test_nearly_every_message_is_known_without_its_prefix() -> None:
    some = SAMPLES[::7]
    assert sum(len(read_in(sample)) == 1 for sample in some) > 0.97 * len(some)


@given(st.sampled_from(SAMPLES), st.sampled_from(sorted(PREFIXED)))
def test_a_message_is_known_with_what_is_left_of_its_prefix(sample: str, form: str) -> None:
    known = read_in(sample)
    assume(len(known) == 1)
    assert read_in(PREFIXED[form](sample)) == known


def test_a_warning_is_known_in_every_frame() -> None:
    wrong = []
    for said in ("nvmlDeviceGetHandleByIndex(3) failed: GPU is lost", "NET/IB : No device found.", "Gadget 3 refused"):
        for head in ("", "node-a:12:13 [3] transport/net.cc:88 "):
            for name, frame in FRAMES.items():
                notices = nccl_inspect.read(frame(f"{head}NCCL WARN {said}").encode()).notices
                hosts = [["node-a"] if head else ["? rank 3" if name == "vLLM" else "?"]]
                if said.startswith("Gadget"):  # nobody knows where it ends
                    if not [notice for notice in notices if "Gadget" in notice.message]:
                        wrong.append((name, head, notices))
                elif [notice.message for notice in notices] != [said] or [one.hosts[:1] for one in notices] != hosts:
                    wrong.append((name, head, notices))
    assert not wrong, "\n".join(map(str, wrong))


def test_a_torn_warning_is_the_only_one_that_it_may_be() -> None:
    for text, rules in (("failed to open CU", ["p2p-import-failed"]), ("Gadget 3 ref", []), ("failed to", [])):
        line = f"node-a:12:13 [3] transport/p2p.cc:238 NCCL WARN {text}"
        for whole in (line, f"{line}...\n{HEAD}NCCL INFO Using network Socket"):
            found = nccl_inspect.read(whole.encode()).findings
            assert [finding.rule for finding in found if finding.severity == "error"] == rules, (whole, found)


@pytest.mark.parametrize("line", WRAPPED)
@pytest.mark.parametrize("margin", ["", "    ", "> "])
@pytest.mark.parametrize("width", [40, 60, 72])
def test_a_line_that_was_broken_by_hand_is_one_again(line: str, margin: str, width: int) -> None:
    line = HEAD + line
    known = read_in(line)
    pieces = [line[at : at + width] for at in range(0, len(line), width)]
    first = "> " if margin == "> " else ""
    assert read_in(f"\n{margin}".join([first + pieces[0], *pieces[1:]])) == known != []


def test_several_messages_in_a_line_are_several() -> None:
    assert read_in("NET/IB : No device found → Failed to initialize NET plugin IB") == [
        "net-ib-none",
        "net-plugin-failed",
    ]
    assert read_in("NET/IB : No device found.<br>Using network Socket") == ["net-ib-none", "network-in-use"]


def test_a_channel_line_may_begin_at_its_ranks() -> None:
    job = nccl_inspect.read(
        b"9[1a000] -> 2[6b000] [send] via NET/IB/0/GDRDMA\n9[1a000] -> 2[6b000] [receive] via NET/IB/1\n"
    )
    assert [(path.src, path.dst, path.gdr) for path in job.paths] == [(9, 2, True), (9, 2, False)]
    assert job.excerpt
    assert job.verdict == "unknown"


def test_the_wording_before_2_4_is_read() -> None:
    job = nccl_inspect.read(b"node-a:3:4 [0] INFO 0 -> 1 via P2P/IPC\nnode-a:3:4 [0] INFO something new\n")
    assert [(path.src, path.dst, path.detail) for path in job.paths] == [(0, 1, "P2P/IPC")]
    assert job.sources[0].unrecognised_lines == 1
    assert [host.name for host in job.hosts] == ["node-a"]


def test_what_the_plugin_prints_by_itself_is_read() -> None:
    line = "10.0.0.83: WARN: Function: find_ofi_provider Line: 543: NET/OFI Couldn't find any optimal provider"
    assert read_in(line) == ["ofi-no-optimal-provider"]


def test_numbers_may_be_left_out_of_a_statement_and_never_of_a_connection() -> None:
    assert read_in("comm 0x... rank 0 nranks 8 cudaDev 0 busId XXXX - Init COMPLETE") == []
    assert read_in("NET/OFI Endpoint 0x... still have ref count 8 when released") == ["ofi-still-alive"]


@pytest.mark.parametrize("text", PROSE)
def test_prose_is_no_log(text: str) -> None:
    assert not read_in(text)
    with pytest.raises(NoInputError, match="no NCCL line"):
        nccl_inspect.read(text.encode())


def test_prose_around_a_log_is_no_log() -> None:
    text = "Using network Socket is what I see:\n\n```\nUsing network Socket\n```\n\nNET/IB : No device found.\n"
    assert read_in(text) == ["network-in-use"]
    assert read_in("```python\nNET/IB : No device found.\n```\n") == []
    assert read_in("{noformat}\nNET/IB : No device found.\n{noformat}\nUsing network Socket\n") == ["net-ib-none"]


DOCUMENTS = [
    *(file for file in ROOT.glob("*.md")),
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "docs" / "explanation").glob("*.md"),
    *(file for file in (ROOT / "docs" / "howto").glob("*.md") if file.name != "assistants.md"),
    *sorted((ROOT / "nccl_inspect").rglob("*.py"))[::12],
]


def alarms(text: bytes) -> list[str]:
    """What is found in a text only because it is read as an excerpt, but for what harms nobody."""
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


def test_an_excerpt_is_no_sound_job() -> None:
    job = nccl_inspect.read(PATHS.encode())
    assert job.excerpt
    assert job.verdict == "unknown"
    assert {path.verdict for path in job.paths} == {"ok"}
    whole = nccl_inspect.read((f"{HEAD}NCCL INFO Using network IB\n" + PATHS + COMPLETE).encode())
    assert (whole.excerpt, whole.verdict) == (False, "ok")


def test_the_end_of_a_log_is_an_excerpt() -> None:
    job = nccl_inspect.read((PATHS + COMPLETE).encode())
    assert (job.excerpt, job.verdict) == (True, "unknown")


def test_an_excerpt_with_a_fault_has_its_verdict() -> None:
    line = (
        "P2P is disabled between NVLINK connected GPUs 1 and 0. This should not be the case given their connectivity, "
    )
    line += (
        "and is probably due to a hardware issue. If you still want to proceed, you can set NCCL_IGNORE_DISABLED_P2P=1."
    )
    job = nccl_inspect.read(line.encode())
    assert [finding.rule for finding in job.findings] == ["p2p-nvlink-fault"]
    assert job.verdict == "failed"


@pytest.mark.parametrize("mark", ["...", "[...]", "…", "> ...", "<snip>", "[truncated]"])
def test_what_says_that_lines_were_left_out_is_an_excerpt(mark: str) -> None:
    job = nccl_inspect.read(f"{PATHS}{mark}\n{COMPLETE}".encode())
    assert job.excerpt
    assert job.verdict == "unknown"


def test_a_log_whose_settings_leave_lines_out_is_none() -> None:
    setting = HEAD + "NCCL INFO NCCL_DEBUG_SUBSYS set by environment to P2P,ENV\n"
    assert not nccl_inspect.read((setting + PATHS).encode()).excerpt


def test_a_whole_log_is_read_once() -> None:
    whole = [
        PATHS + COMPLETE + "step 1\n",
        PATHS + COMPLETE + "Using network Socket\n",
        PATHS,
        PATHS + "step 1 of the program\n" * (PASTE // 10),
    ]
    assert not any(scans(lambda log=log: nccl_inspect.read(log.encode())) for log in whole)  # type: ignore[misc]
    assert not scans(lambda: list(nccl_inspect.events((PATHS + "step 1\n").encode())))
    assert scans(lambda: nccl_inspect.read((PATHS + "step 1\n").encode())) == 1


def scans(work: Callable[[], object]) -> int:
    """How often a text is read as an excerpt."""
    called = calls_by_function(work)
    return sum(number for name, number in called.items() if name.endswith(" Excerpt.scan"))


def test_a_long_text_is_no_excerpt() -> None:
    with pytest.raises(NoInputError, match="no NCCL line"):
        nccl_inspect.read(b"Using network Socket\n" * (PASTE // 20 + 1))


def test_every_command_reads_excerpts(tmp_path: Path) -> None:
    file = tmp_path / "paste.txt"
    file.write_text("- `NET/IB : No device found`\n- `Using network Socket`\n")
    assert "an excerpt" in invoke("summarize", str(file)).stdout
    assert "^ No InfiniBand" in invoke("annotate", str(file)).stdout
    assert '"net-ib-none"' in invoke("events", str(file), "--format", "jsonl").stdout
    assert invoke("anonymize", str(file)).stdout == file.read_text()
    assert "net-ib-none" in invoke("explain", "> `NET/IB : No device found`").stdout


@pytest.mark.parametrize(
    ("line", "elided"),
    [
        ("... 120 lines omitted ...", True),
        ("[120 lines omitted]", True),
        ("… 3,400 lines skipped …", True),
        ("--- 12 lines truncated ---", True),
        ("> ... 12 more lines ...", True),
        ("<lines removed>", True),
        ("step 3: lines omitted from the table", False),
        ("NCCL INFO lines removed", False),
        ("100 lines", False),
    ],
)
def test_a_line_that_says_that_lines_were_left_out_makes_an_excerpt(line: str, elided: bool) -> None:
    assert is_elided(f"one\n{line}\ntwo\n".encode()) is elided


def test_explain_puts_a_broken_line_together() -> None:
    broken = f"{HEAD}NCCL INFO Channel 00/0 : 0[0] ->\n    1[1] via P2P/CUMEM\n"
    assert "channel-p2p" in invoke("explain", data=broken.encode()).stdout
    assert invoke("explain", data=PATHS.encode()).stdout.startswith("> ")


def test_the_headline_of_a_clue_does_not_end_with_the_good_paths_of_an_excerpt() -> None:
    said = "NCCL_P2P_LEVEL set by environment to LOC\n2[6b000] -> 9[1a000] [send] via NET/IB/0/GDRDMA\n"
    line = verdict_line(nccl_inspect.read(said.encode()))
    assert line == "UNKNOWN, likely: P2P between GPUs of a host is disabled by NCCL_P2P_DISABLE=1 or NCCL_P2P_LEVEL=LOC"
