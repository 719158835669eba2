"""Rules for the code: imports point one way, modules stay small enough to be read at once, tests reach into nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from layers import PACKAGE, imports_of, modules, room_of
from repository import ROOT, TESTS

MAX_LINES = 900
LAYERS = [
    {"util"},
    {"event"},
    {"ingest", "grammar"},
    {"scanning"},
    {"model"},
    {"platforms", "topology"},
    {"artifacts"},
    {"judging"},
    {"story", "bandwidth"},
    {"rules", "answers", "judge"},
    {"report"},
    {"pipeline", "traffic"},
    {"explain"},
]
"""The rooms; each may use those in the lines before its own."""
FLOOR = {"errors", "_version"}
"""What all may use."""
FRONT_DOORS = {"", "cli", "__main__", "extras"}
"""What may use all: the package itself, which programs import, commands and the extras."""
MAY_START_EXTRAS = {"extras", "__main__"}
"""What may name an extra; commands are found by their files, so that each folder of extras/ can be deleted."""
RANKS = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms} | dict.fromkeys(FLOOR, -1)
FOUND = {f"scanning.{name}" for name in ("counts", "found")}
"""What a scanner gives to the model: data."""
OUTSIDE = ("ingest", "grammar", "report", "cli")
"""What rules know nothing of."""
SHARED = {"report": ("words", "tables", "digest", "head", "jobs", "picture"), "cli": ("shared", "manual", "questions")}
"""What formats and commands may import of their siblings."""


def forbidden(module: str) -> Iterator[str]:
    """Yield the imports of a module that it must not have."""
    room, name = room_of(module), module.partition("/")[2]
    reads = ("scanning.", "ingest.sources")
    is_data = room == "model" or module.replace("/", ".") in FOUND
    is_sibling = room in SHARED and name not in ("__init__", "", *SHARED[room])
    for target in imports_of(module):
        other, _, part = target.partition(".")
        above = other != room and RANKS.get(other, len(LAYERS)) >= RANKS.get(room, len(LAYERS))
        reasons = {
            "lies above": above and room not in FRONT_DOORS,
            "is an extra": other == "extras" and room not in MAY_START_EXTRAS,
            "reads: the model takes in what was found": is_data and target.startswith(reads) and target not in FOUND,
            "is another rule, a file or a format": room == other == "rules" or (room == "rules" and other in OUTSIDE),
            "is a sibling": is_sibling and other == room and part and part.partition(".")[0] not in SHARED[room],
        }
        yield from (f"{target}, which {reason}" for reason, holds in reasons.items() if holds)


def test_a_module_is_small_documented_and_imports_only_what_it_may() -> None:
    wrong = [f"{module} imports {what}" for module in modules() for what in forbidden(module)]
    for module in modules():
        text = (PACKAGE / f"{module}.py").read_text(encoding="utf-8")
        if text.count("\n") > MAX_LINES:
            wrong.append(f"{module} has {text.count(chr(10))} lines")
        if module != "_version" and not text.startswith('"""'):
            wrong.append(f"{module} does not say what it is for")
        checks = {
            f"{PACKAGE / module}.md",
            *(f"{PACKAGE}/rules/{name}.md" for name in re.findall(r"^def (\w+)", text, re.M)),
        }
        if room_of(module) == "rules" and module != "rules/__init__" and not any(map(os.path.isfile, checks)):
            wrong.append(f"{module} has no function with the name of a page")
        # From Python 3.14 on only texts stand in the bodies of classes from which fields are read.
        if "\nfrom nccl_inspect.util.records import " in text and "from __future__ import annotations\n" not in text:
            wrong.append(f"{module} needs 'from __future__ import annotations'")
    assert not wrong, "\n".join(wrong)
    assert {room_of(module) for module in modules()} == FLOOR.union(FRONT_DOORS, *LAYERS)


def test_no_private_name_is_patched_by_a_test() -> None:
    """What tests change of the package has a public name, or is an argument with a default."""
    patched = re.compile(r"\b(?:setattr|delattr|object|patch)\(\s*(?:[^\"'(),]+,\s*)?[\"'](?:\w+\.)*_\w+[\"']")
    found = ((file, match[0]) for file in TESTS.rglob("*.py") for match in patched.finditer(file.read_text("utf-8")))
    assert not [f"{file}: {call}" for file, call in found]


@pytest.mark.slow
def test_the_core_judges_and_lists_its_commands_without_the_extras(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=shutil.ignore_patterns("extras", "__pycache__"))
    log = ROOT / "sample_logs" / "efa-provider-missing-socket-fallback" / "job.log"
    for arguments in (["--help"], ["summarize", str(log)], ["summarize", "--format", "html", str(log)]):
        command = [sys.executable, "-m", PACKAGE.name, *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
        assert (done.returncode, done.stderr) == (0, ""), arguments
        assert "anonymize" not in done.stdout
