"""Help, manual pages, lists, colours and widths: what people see of the command line."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import click
import man_pages
import pytest
import sample_data
from call_count import calls
from command_line import execute, invoke
from terminals import SLOW, on_a_terminal, run

from nccl_inspect.cli import cli, manual
from nccl_inspect.cli.annotate import _Margin
from nccl_inspect.grammar.engine import load_grammar
from nccl_inspect.judging.engine import list_rules
from nccl_inspect.report import Style

TOP = cli.context_class(cli, info_name="nccl-inspect")
CONTEXTS = {
    ctx.command_path.partition(" ")[2]: ctx for ctx in man_pages.contexts(TOP, help_option_names=["-h", "--help"])
}
COMMANDS = {name: ctx.command for name, ctx in CONTEXTS.items()}
SILENT = ("fleet", "fleet add", "grammar", "help", "mcp", "run")
"""What prints no report."""
ESCAPE = b"\x1b["


def test_the_rules_are_listed() -> None:
    document = json.loads(invoke("rules", "--format", "json").stdout)
    assert [rule["name"] for rule in document] == [entry.rule.name for entry in list_rules()]
    assert all(rule["title"] and rule["category"] and rule["severity"] for rule in document)
    table = invoke("rules").stdout
    assert all(entry.rule.name in table for entry in list_rules())


def test_help_says_what_a_command_does_and_fits() -> None:
    wrong: list[object] = []
    for name in COMMANDS:
        output = invoke(*name.split(), "-h").stdout
        text = re.split(r"^\S", output.partition("\n\n")[2], maxsplit=1, flags=re.MULTILINE)[0].strip()
        is_sentence = len(text.split()) > 5 and text.endswith((".", ")"))
        has_example = f"\n  nccl-inspect {name}" in output.partition("Examples:")[2]
        wrong += [] if is_sentence and has_example else [(name, text)]
    for name in (*COMMANDS, ""):
        for columns in (40, 80, 120):
            lines = execute(*name.split(), "--help", env={"COLUMNS": f"{columns}"}).stdout.decode().splitlines()
            long = [line for line in lines if len(line) > columns and not line.strip().startswith(("'", '"'))]
            whole = [example.command for example in manual.examples(COMMANDS.get(name, TOP.command))]
            wrong += [(name, line) for line in long if line.strip() not in whole]
    assert not wrong
    output = invoke("--help").stdout
    assert all(re.search(rf"^  {name} +\S", output, re.MULTILINE) for name in cli.list_commands(TOP))
    assert re.search(r"^Exit status:\n  0 +Done", output, re.MULTILINE)


def test_commands_name_their_options_alike_and_under_a_purpose() -> None:
    known: dict[str, tuple[object, ...]] = {}
    spelled = {"help", "version"}
    for name, ctx in CONTEXTS.items():
        command = ctx.command
        shown = [head for _, rows in manual.options(ctx) for head, _ in rows]
        options = [one for one in command.get_params(ctx) if isinstance(one, click.Option) and not one.hidden]
        assert len(shown) == len(set(shown)) == len(options), name
        assert "Options" not in dict(manual.options(ctx)), f"{name}: an option without a purpose; see manual.GROUPS"
        for option in (option for option in command.params if not getattr(option, "hidden", False)):
            spelled |= {opt.lstrip("-") for opt in option.opts}
            assert isinstance(option, click.Argument) or getattr(option, "help", None), f"{name} {option.name}: no help"
            looks = (tuple(option.opts), option.metavar, option.multiple if isinstance(option, click.Option) else None)
            assert known.setdefault(option.name or "", looks) == looks, f"{name} {option.name}"
        names = {option.name for option in command.params}
        assert "output" in names or name in (*SILENT, "watch")
        assert "no_color" in names or name in (*SILENT, "anonymize", "collect", "events")
    assert {name for _, names in manual.GROUPS for name in names} <= spelled, "every named option exists"


def test_a_command_tells_its_exit_statuses() -> None:
    for name, codes in {"summarize": "0 1 2 3 130", "paths": "0 2 3 130", "rules": "0 2"}.items():
        assert [code for code, _ in manual.statuses(COMMANDS[name])] == codes.split()
    own = dict(manual.statuses(COMMANDS["check"]))
    assert (list(own), own["0"]) == (["0", "1", "2", "3", "130"], "The policy is kept, or undecided without --strict.")


def test_examples_fit() -> None:
    shown = [manual.Example("tool a.log", "plain"), manual.Example("tool a.log --to 'b c'", "both")]
    for width, lines in {
        60: ["tool a.log              plain", "tool a.log --to 'b c'   both"],
        24: ["# plain", "tool a.log", "# both", "tool a.log --to 'b c'"],
    }.items():
        assert list(manual.fit_examples(shown, width)) == lines


def test_a_margin_note_costs_little() -> None:
    (log,) = sample_data.contents("p2p-nvlink-8gpu")
    lines = log.split(b"\n")

    def work() -> None:
        for _ in _Margin(load_grammar(), False, Style()).add_notes(lines):
            pass

    work()
    assert calls(work) < 60 * len(lines)


@pytest.mark.slow
def test_manual_pages_show_without_complaint(tmp_path: Path) -> None:
    pages = dict(man_pages.pages())
    assert set(pages) == {
        "nccl-inspect",
        *(f"nccl-inspect-{name.replace(' ', '-')}" for name in COMMANDS),
    }
    for name, text in pages.items():
        (tmp_path / f"{name}.1").write_text(text, encoding="utf-8")
        assert ".SH OPTIONS" in text
    for program in (["groff", "-man", "-Tutf8", "-ww", "-z"], ["mandoc", "-Tlint", "-W", "warning"]):
        if shutil.which(program[0]):
            done = subprocess.run([*program, *tmp_path.iterdir()], capture_output=True, text=True, check=False)
            complaints = (done.stdout + done.stderr).splitlines()
            assert not [line for line in complaints if "missing date" not in line]  # it would change each build


@pytest.mark.slow
def test_there_is_colour_on_a_terminal_unless_it_is_unwanted(tmp_path: Path) -> None:
    assert ESCAPE not in run("summarize", SLOW, env={"TERM": "xterm"}).stdout
    assert b"\x1b[33mDEGRADED\x1b[0m" in on_a_terminal(["summarize", SLOW])
    assert ESCAPE not in on_a_terminal(["summarize", SLOW, "--no-color"])
    for unwanted in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert ESCAPE not in on_a_terminal(["summarize", SLOW], unwanted)
    target = tmp_path / "report.txt"
    assert on_a_terminal(["summarize", SLOW, "-o", str(target)]) == b""
    assert ESCAPE not in target.read_bytes()


def unfit(command: str) -> list[str]:
    wrong: list[str] = []
    for columns in (40, 60, 80, 132):
        done = execute(*command.split(), cwd=sample_data.FOLDER, env={"COLUMNS": f"{columns}"})
        for line in done.stdout.decode().splitlines():
            is_wide = len(line) > columns and len(line.split()) > 1
            wrong += [f"{command} at {columns}: {line}"] if is_wide or line != line.rstrip() or "\x1b" in line else []
    return wrong


@sample_data.one_or_all("peer-killed", "v2.30.7-shm-4gpu")
def test_what_is_told_fits_the_width_unless_a_single_word_does_not(names: tuple[str, ...]) -> None:
    pairs = [("p2p-nvlink-8gpu", "v2.30.7-shm-4gpu"), ("socket-2node-tp4-dp2", "timestamps")]
    pairs += [("v2.28.9-libfabric-2node", "efa-provider-missing-socket-fallback")]
    commands = [f"summarize {name}" for name in names] + [f"diff {one}/job.log {other}/job.log" for one, other in pairs]
    assert not [line for command in commands for line in unfit(command)]
