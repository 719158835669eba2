"""Help and manual pages: options by purpose, statuses, examples that fit, and pages that man can show."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import click
import man_pages
import pytest

from nccl_inspect import kubectl
from nccl_inspect.cli import cli, manual

TOP = cli.context_class(cli, info_name="nccl-inspect")
COMMANDS = {name: command for name in cli.list_commands(TOP) if (command := cli.get_command(TOP, name))}


def context(name: str) -> click.Context:
    return COMMANDS[name].context_class(COMMANDS[name], TOP, name, help_option_names=["-h", "--help"])


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_is_told_once_and_under_a_purpose(name: str) -> None:
    ctx = context(name)
    told = [head for _, rows in manual.options(ctx) for head, _ in rows]
    known = [option for option in ctx.command.get_params(ctx) if isinstance(option, click.Option)]
    assert len(told) == len(set(told)) == len(known)
    assert "Options" not in dict(manual.options(ctx)), "an option without a purpose: add it to manual.GROUPS"


def test_every_named_option_exists() -> None:
    known = {opt.lstrip("-") for command in COMMANDS.values() for option in command.params for opt in option.opts}
    known |= {opt.lstrip("-") for option in kubectl.command.params for opt in option.opts}
    assert {name for _, names in manual.GROUPS for name in names} <= known | {"help", "version"}


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("summarize", ["0", "1", "2", "3", "130"]),
        ("paths", ["0", "2", "3", "130"]),
        ("check", ["0", "1", "2", "3", "130"]),
        ("rules", ["0", "2"]),
    ],
)
def test_a_command_tells_its_exit_statuses(name: str, codes: list[str]) -> None:
    assert [code for code, _ in manual.statuses(COMMANDS[name])] == codes


def test_own_words_for_a_status_replace_the_usual_ones() -> None:
    assert dict(manual.statuses(COMMANDS["check"]))["0"] == "The policy is kept."


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (60, ["tool a.log              plain", "tool a.log --to 'b c'   both"]),
        (24, ["# plain", "tool a.log", "# both", "tool a.log --to 'b c'"]),
        (20, ["# plain", "tool a.log", "# both", "tool a.log \\", "    --to 'b c'"]),
    ],
)
def test_examples_fit(width: int, lines: list[str]) -> None:
    told = [manual.Example("tool a.log", "plain"), manual.Example("tool a.log --to 'b c'", "both")]
    assert list(manual.fitted(told, width)) == lines


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff on this machine")
def test_manual_pages_show_without_complaint(tmp_path: Path) -> None:
    pages = dict(man_pages.pages())
    assert set(pages) == {"nccl-inspect", "kubectl-nccl", *(f"nccl-inspect-{name}" for name in COMMANDS)}
    for name, text in pages.items():
        file = tmp_path / f"{name}.1"
        file.write_text(text, encoding="utf-8")
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", file], capture_output=True, text=True, check=True)
        assert not done.stderr
        assert ".SH OPTIONS" in text


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="no mandoc on this machine")
def test_manual_pages_pass_the_check_of_mandoc(tmp_path: Path) -> None:
    for name, text in man_pages.pages():
        file = tmp_path / f"{name}.1"
        file.write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["mandoc", "-Tlint", "-W", "warning", *tmp_path.iterdir()], capture_output=True, text=True, check=False
    )
    complaints = [line for line in done.stdout.splitlines() if "missing date" not in line]  # it would change each build
    assert not complaints
