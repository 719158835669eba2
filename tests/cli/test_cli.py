"""The command line: exit statuses, errors in one line, options, and how little a short run loads."""

from __future__ import annotations

import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sample_data
from command_line import execute, invoke
from few_examples import every
from repository import TESTS
from terminals import EXE, HEALTHY, SLOW, on_a_terminal

from nccl_inspect import platforms, report
from nccl_inspect.judging.engine import list_rules

TOPOLOGY = str(TESTS / "data" / "h200-4gpu.nccl-topo.xml")
COMMANDS = tomllib.loads((TESTS / "cli" / "commands.toml").read_text(encoding="utf-8"))


def words(args: str, **places: str) -> list[str]:
    names = {"LOG": HEALTHY, "SLOW": SLOW, "TOPOLOGY": TOPOLOGY, **places}
    return [names.get(word, word) for word in args.split()]


# --- exit statuses and errors


def test_statuses(tmp_path: Path) -> None:
    """Status 1 needs a finding as severe as asked for; a gate does not pass while a part cannot be read."""
    (tmp_path / "policy.toml").write_text('[paths.intra]\ntransport = "P2P"')
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "job.log").write_bytes(Path(HEALTHY).read_bytes())
    (tmp_path / "run" / "rank8.log.gz").write_bytes(b"\x1f\x8b\x08\x00 cut")
    wrong: list[object] = []
    for args, status in COMMANDS["statuses"].items():
        done = execute(*words(args), cwd=tmp_path)
        is_told = "gone.log" in args or "run" in args.split() or "--cluster" in args
        if (done.returncode, done.stderr.count(b"\n")) != (status, int(is_told)) or not done.stdout:
            wrong.append((args, done))
    assert not wrong


@every(5)
def test_an_error_is_one_line_that_says_what_where_and_what_to_do(step: int, tmp_path: Path) -> None:
    (tmp_path / "empty.log").touch()
    (tmp_path / "other.log").write_text("one line\nanother\n")
    (tmp_path / "binary.log").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "cut.log.gz").write_bytes(b"\x1f\x8b\x08\x00 cut")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "weights.bin").write_bytes(b"x")
    (tmp_path / "topo.txt").write_text("no matrix\n")
    wrong: list[object] = []
    for args, (status, says) in [*COMMANDS["errors"].items()][::step]:
        done = execute(*words(args), cwd=tmp_path)
        message = done.stderr.decode()
        is_line = message.startswith("nccl-inspect: ") and message.count("\n") == 1
        if (done.returncode, done.stdout, is_line, says in message) != (status, b"", True, True):
            wrong.append((args, done))
    done = execute("explain", "first words", "other words")
    wrong += [] if b"none of the 2 lines is known; run " in done.stderr else [done]
    done = execute("summarize", "gone.log", env={"NCCLINSPECT_MAX_UNPACKED": "much"})
    wrong += [] if b"invalid size 'much' for --max-unpacked" in done.stderr else [done]
    assert not wrong


def test_a_missing_log_is_the_same_error_alone_and_with_another(tmp_path: Path) -> None:
    for name in ("no-such.log", "no-such/", "*.none", ""):
        alone, both = (execute("summarize", *names, cwd=tmp_path) for names in ([name], [name, "other.none"]))
        assert alone.returncode == both.returncode
        assert alone.stderr == both.stderr.replace(b" (1 more cannot be read)", b"")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "job.log").touch(mode=0)
    done = execute("summarize", "job.log", cwd=tmp_path)
    assert (done.returncode, done.stderr.count(b"\n")) == (3, 1)
    assert b"no read permission" in done.stderr


@pytest.mark.slow
def test_without_a_log_on_a_terminal_the_error_says_how_to_give_one() -> None:
    shown = on_a_terminal(["summarize"])
    assert shown.count(b"\n") == 1
    assert b"nccl-inspect: no input; name a log file, or pipe one in" in shown


@pytest.mark.slow
def test_too_little_memory_is_an_error_in_one_line(tmp_path: Path) -> None:
    line = b"h%d:7:7 [0] NCCL INFO Channel 00/0 : %d[0] -> %d[1] via P2P/CUMEM\n"
    log = tmp_path / "job.log"
    log.write_bytes(b"".join(line % (number % 9000, number, number * 7919 % 100_003) for number in range(100_000)))
    for megabytes in (150, 200, 250):
        limit = megabytes << 20
        done = subprocess.run(
            [*EXE, "summarize", "--jobs", "1", str(log)],
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=partial(resource.setrlimit, resource.RLIMIT_AS, (limit, limit)),
            timeout=120,
        )
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
        assert done.stderr.startswith("nccl-inspect: out of memory; ")


def test_what_is_piped_in_is_read_with_a_dash_or_without_a_name() -> None:
    for args in (["summarize"], ["summarize", "-"], ["paths"], ["paths", "-"]):
        done = execute(*args, data=Path(HEALTHY).read_bytes())
        assert (done.returncode, done.stderr, b"P2P/CUMEM" in done.stdout) == (0, b"", True)
    done = execute("summarize", data=(sample_data.FOLDER / "v2.30.7-subsys-all" / "job.log.gz").read_bytes())
    assert (done.returncode, done.stderr, b"NET/Socket" in done.stdout) == (0, b"", True)


def test_without_a_line_of_nccl_the_lines_are_shown_as_they_are() -> None:
    done = execute("annotate", data=b"we like NCCL\n")
    assert (done.returncode, done.stdout) == (3, b"we like NCCL\n")
    assert b"no NCCL line among 1 line;" in done.stderr


# --- a short run is mostly imports: what it loads and compiles is counted, never timed

_COUNTED = """
import collections, dataclasses, re, sys
counts = {"patterns": 0, "constructors": 0, "dataclasses": 0, "named tuples": 0}
def counted(name, call):
    def made(*given, **values):
        counts[name] += sys._getframe(1).f_globals["__name__"].startswith(("nccl_inspect", "typing"))
        return call(*given, **values)
    return made
re.compile = counted("patterns", re.compile)
dataclasses.make_dataclass = counted("constructors", dataclasses.make_dataclass)
dataclasses.dataclass = counted("dataclasses", dataclasses.dataclass)
collections.namedtuple = counted("named tuples", collections.namedtuple)
from nccl_inspect import cli
import nccl_inspect.cli.summarize
counts["patterns at import"] = counts["patterns"]
sys.argv[0] = "nccl-inspect"
counts["status"] = cli.execute()
own = [name for name in sys.modules if name.startswith("nccl_inspect.")]
counts["modules"] = len([name for name in own if not name.startswith("nccl_inspect.rules.")])
heavy = ("pandas", "pyarrow", "numpy", "jinja2", "junitparser", "prometheus_client", "xml.etree", "hashlib", "json")
settings = ("tomllib", "nccl_inspect.util.toml", "nccl_inspect.pipeline.configuration", "nccl_inspect.judging.accepted")
counts["heavy"] = [name for name in (*heavy, *settings) if name in sys.modules]
import json
print(json.dumps(counts), file=sys.stderr)
"""


def list_loaded(*args: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-c", _COUNTED, *args]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    result: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])
    return result


@pytest.mark.slow
def test_a_run_needs_a_part_of_the_program(tmp_path: Path) -> None:
    lines = (sample_data.FOLDER / "p2p-nvlink-8gpu" / "job.log").read_bytes().splitlines(True)
    small = str(tmp_path / "job.log")
    Path(small).write_bytes(b"".join(line for line in lines if b"busbw" not in line))  # results need more
    counted = list_loaded("summarize", small, folder=tmp_path)
    assert counted["status"] == 0
    assert counted["modules"] <= 264
    assert counted["patterns"] <= 99, "patterns that most logs do not need are made with util.patterns.compile_later"
    assert counted["constructors"] <= 3, "of classes with many objects only"
    assert counted["named tuples"] <= 60, "those of few objects are declared with util.records"
    for args in (["summarize", small], ["summarize", SLOW], ["paths", SLOW], ["rules"]):
        counted = list_loaded(*args, folder=tmp_path)
        assert set(counted["heavy"]) <= (set() if small in args else {"json", "tomllib"}), (
            "figures, formats, settings do"
        )
        assert counted["dataclasses"] == 0, "classes are declared with util.records"
    for args, status in (["no-such.log"], 3), (["--help"], 0):
        counted = list_loaded("summarize", *args, folder=tmp_path)
        assert counted["status"] == status
        assert counted["modules"] <= 35, "what needs no job loads no model"
        assert counted["patterns at import"] <= 8


def test_a_program_that_calls_the_command_keeps_its_garbage_collection() -> None:
    """Only the process of the command itself, which ends then, does without."""
    frozen = gc.get_freeze_count()
    assert invoke("summarize", SLOW).exit_code == 0
    assert gc.isenabled()
    assert gc.get_freeze_count() <= frozen


# --- Shells complete what there is: commands, options, rules, formats, platforms, files

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
