"""A short run is mostly imports: what it loads and compiles is counted, never timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sample_data

SMALL = str(sample_data.FOLDER / "efa-provider-missing-socket-fallback" / "job.log")
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
counts["json"] = "json" in sys.modules
import json
print(json.dumps(counts), file=sys.stderr)
"""


def counts(*args: str, folder: Path | None = None) -> dict[str, int]:
    """What a run loads and makes."""
    command = [sys.executable, "-c", _COUNTED, *args]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    result: dict[str, int] = json.loads(done.stderr.splitlines()[-1])
    return result


def test_a_small_log_needs_a_part_of_the_program() -> None:
    counted = counts("summarize", SMALL)
    assert counted["status"] == 0
    assert counted["modules"] <= 250
    assert counted["patterns"] <= 95, "patterns that most logs do not need are made with util.patterns.later"
    assert counted["constructors"] <= 3, "of classes with many objects only"
    assert counted["dataclasses"] == 0, "classes are declared with util.records"
    assert counted["named tuples"] <= 60, "those of few objects are declared with util.records"
    assert not counted["json"], "only what is written or read as JSON needs it"


@pytest.mark.parametrize("args", [["no-such.log"], ["--help"]], ids=["missing", "help"])
def test_what_needs_no_job_loads_no_model(args: list[str], tmp_path: Path) -> None:
    counted = counts("summarize", *args, folder=tmp_path)
    assert counted["status"] == (3 if args == ["no-such.log"] else 0)
    assert counted["modules"] <= 35
    assert counted["patterns at import"] <= 8
    assert counted["dataclasses"] == 0


@pytest.mark.parametrize(
    ("args", "variables", "error"),
    [
        (["--platform", "no-such"], {}, "no platform 'no-such'"),
        (["--cluster", "nowhere"], {}, "--cluster nowhere: "),
        ([], {"NCCLINSPECT_MAX_UNPACKED": "much"}, "invalid size 'much' for --max-unpacked"),
    ],
    ids=["platform", "cluster", "limit"],
)
def test_options_are_judged_before_the_log(
    args: list[str], variables: dict[str, str], error: str, tmp_path: Path
) -> None:
    """What is wrong with them is said first, also of a log that is missing."""
    command = [sys.executable, "-m", "nccl_inspect", "summarize", "no-such.log", *args]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | variables, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"nccl-inspect: {error}")


@pytest.mark.parametrize("name", ["no-such.log", "no-such/", "*.none", ""])
def test_a_missing_log_is_the_same_error_alone_and_with_another(name: str, tmp_path: Path) -> None:
    def error(*names: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "nccl_inspect", "summarize", *names]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stderr.replace(" (1 more cannot be read)", "")

    assert error(name) == error(name, "other.none")
