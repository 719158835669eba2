"""Shells complete what there is: commands, options, rules, formats, platforms, files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import execute, invoke

from nccl_inspect import platforms, report
from nccl_inspect.judging.engine import list_rules

SHELLS = ("bash", "zsh", "fish")
RULES = {entry.rule.name for entry in list_rules()}


def complete_words(words: str) -> set[str]:
    """Return what bash is told after these words, of which the last is not yet complete."""
    typed = {"COMP_WORDS": f"nccl-inspect {words}", "COMP_CWORD": str(len(words.split(" ")))}
    done = execute(env={"_NCCLINSPECT_COMPLETE": "bash_complete", **typed})
    assert done.stderr == b""
    return {line.partition(",")[2] or line for line in done.stdout.decode().splitlines()}


def test_names_are_completed() -> None:
    wanted = {
        "su": {"summarize"},
        "summarize --fo": {"--format"},
        "summarize --format ": set(report.names()),
        "summarize --select socket-": {name for name in RULES if name.startswith("socket-")},
        "check --ignore ": RULES,
        "explain gdr-d": {"gdr-disabled"},
        "watch --platform p5": {name for name in platforms.load_platforms() if name.startswith("p5")},
        "paths --scope int": {"intra", "inter"},
        "paths --finding nic-": {name for name in RULES if name.startswith("nic-")},
        "hosts --finding gdr-d": {"gdr-disabled"},
        "ranks --state s": {"seen", "silent", "suspect"},
        "completion ": set(SHELLS),
        # files are left to the shell
        "summarize jo": {"jo"},
        **{words: {"a"} for words in ("diff a", "watch a", "check --policy a", "summarize --topology a")},
    }
    assert {words: complete_words(words) for words in wanted} == wanted
    assert complete_words("no-such-command x") <= {""}


@pytest.mark.slow
def test_the_script_is_sound_to_its_shell(tmp_path: Path) -> None:
    for shell in SHELLS:
        script = invoke("completion", shell).stdout
        assert "_NCCLINSPECT_COMPLETE" in script
        assert " _NCCL_" not in script
        if shutil.which(shell):
            (tmp_path / "script").write_text(script)
            done = subprocess.run([shell, "-n", tmp_path / "script"], capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, "")


def installed_program(folder: Path) -> dict[str, str]:
    """Return an environment whose path has the program."""
    tool = folder / "nccl-inspect"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from nccl_inspect.cli import main; main()" "$@"\n')
    tool.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.slow
def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    script = invoke("completion", "bash").stdout
    test = (
        f"{script}\nCOMP_WORDS=(nccl-inspect explain socket-instead-of-e); COMP_CWORD=2\n"
        '_nccl_inspect_completion nccl-inspect\necho "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", test], env=installed_program(tmp_path), capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("socket-instead-of-efa\n", "")
