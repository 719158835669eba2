"""Help, lists, colours and widths: what people see of the command line."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import click
import pytest
import sample_data
from command_line import invoke
from terminals import SLOW, on_a_terminal, run

import nccl_inspect
from nccl_inspect.cli import cli
from nccl_inspect.judging.engine import registered
from nccl_inspect.report import Style
from nccl_inspect.report.text import brief

COMMANDS = cli.list_commands(click.Context(cli))
ESCAPE = b"\x1b["


# --- rules and help


def test_the_rules_are_listed_as_json() -> None:
    document = json.loads(invoke("rules", "--format", "json").stdout)
    assert [rule["name"] for rule in document] == [entry.rule.name for entry in registered()]
    assert all(rule["title"] and rule["category"] and rule["severity"] for rule in document)


def test_the_rules_are_listed_as_a_table() -> None:
    output = invoke("rules").stdout
    assert all(entry.rule.name in output for entry in registered())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_a_command_does(name: str) -> None:
    for option in ("-h", "--help"):
        output = invoke(name, option).stdout
        text = re.split(r"^\S", output.partition("\n\n")[2], maxsplit=1, flags=re.MULTILINE)[0].strip()
        assert len(text.split()) > 5
        assert text.endswith((".", ")"))
        assert f"\n  nccl-inspect {name}" in output.partition("Examples:")[2]


@pytest.mark.parametrize("name", [*COMMANDS, ""])
@pytest.mark.parametrize("columns", [40, 80, 120])
def test_help_fits_but_for_what_stands_in_quotes(name: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for line in invoke(*name.split(), "--help").stdout.splitlines():
        assert len(line) <= columns or line.strip().startswith("'")


def test_commands_name_their_options_alike() -> None:
    known: dict[str, tuple[object, ...]] = {}
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        for option in command.params:
            assert isinstance(option, click.Argument) or getattr(option, "help", None), f"{name} {option.name}: no help"
            looks = (tuple(option.opts), option.metavar, option.multiple if isinstance(option, click.Option) else None)
            assert known.setdefault(option.name or "", looks) == looks, f"{name} {option.name}"
        names = {option.name for option in command.params}
        assert "output" in names or name in ("grammar", "help", "mcp", "run", "watch")
        assert "no_color" in names or name in ("anonymize", "collect", "events", "grammar", "help", "mcp", "run")


def test_help_lists_all_commands_and_the_exit_statuses() -> None:
    output = invoke("--help").stdout
    assert {"summarize", "paths", "rules"} <= set(COMMANDS)
    assert all(re.search(rf"^  {name} +\S", output, re.MULTILINE) for name in COMMANDS)
    assert re.search(r"^Exit status:\n  0 +Done", output, re.MULTILINE)


# --- looks


def test_there_is_no_colour_in_a_pipe() -> None:
    done = run("summarize", SLOW, env={"TERM": "xterm"})
    assert ESCAPE not in done.stdout


def test_there_is_colour_on_a_terminal_unless_it_is_unwanted(tmp_path: Path) -> None:
    assert b"\x1b[33mDEGRADED\x1b[0m" in on_a_terminal(["summarize", SLOW])
    assert ESCAPE not in on_a_terminal(["summarize", SLOW, "--no-color"])
    assert ESCAPE not in on_a_terminal(["summarize", SLOW], {"NO_COLOR": "1"})
    target = tmp_path / "report.txt"
    assert on_a_terminal(["summarize", SLOW, "-o", str(target)]) == b""
    assert ESCAPE not in target.read_bytes()


def test_escape_sequences_of_a_log_do_not_reach_the_terminal() -> None:
    log = b"vm:1:1 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to \x1b]0;owned\x07\xff\n"
    for form in ("text", "json"):
        done = run("summarize", "--format", form, data=log)
        assert done.returncode == 0
        assert b"\x1b" not in done.stdout
        assert b"\x07" not in done.stdout


@pytest.mark.parametrize("columns", [40, 60, 80, 132])
@pytest.mark.parametrize("name", sample_data.names())
def test_the_summary_fits_the_width_unless_a_single_word_does_not(
    name: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.chdir(sample_data.FOLDER)
    for line in invoke("summarize", name).stdout.splitlines():
        assert len(line) <= columns or len(line.split()) == 1, line


@pytest.mark.parametrize("name", sample_data.names())
def test_the_summary_is_plain_text_that_any_locale_can_take(name: str) -> None:
    output = invoke("summarize", str(sample_data.FOLDER / name)).stdout
    assert output.endswith("\n")
    assert "\x1b" not in output
    assert not re.search(r"[ \t]+$", output, re.MULTILINE)


def test_output_that_the_terminal_cannot_encode_is_no_error() -> None:
    done = run("summarize", str(sample_data.FOLDER / "peer-killed"), env={"PYTHONIOENCODING": "ascii", "COLUMNS": "40"})
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_long_line_of_evidence_is_cut_for_people_and_whole_with_verbose() -> None:
    # what PyTorch prints since 2.5, c10/cuda/CUDACachingAllocator.cpp
    memory = (
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity "
        "of 79.10 GiB of which 1.29 GiB is free. Including non-PyTorch memory, this process has 77.80 GiB memory in "
        "use. Of the allocated memory 70.18 GiB is allocated by PyTorch, and 5.06 GiB is reserved by PyTorch but "
        "unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )
    job = nccl_inspect.read(SLOW)
    finding = next(one for one in job.findings if one.evidence)
    finding.evidence[0] = dataclasses.replace(finding.evidence[0], text=memory)
    short, whole = (
        " ".join(" ".join(brief(finding, job, Style(color=False, width=100, verbose=verbose))).split())
        for verbose in (False, True)
    )
    assert re.search(r"evidence \S+: \[rank1\]: torch.OutOfMemoryError: CUDA out of memory.*…$", short)
    assert memory not in short
    assert memory in whole
    assert memory in json.dumps(job.to_dict())
