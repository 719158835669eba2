"""Inputs that cannot be read, output that ends early, and what is understood without a command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from repository import ROOT

from nccl_inspect.errors import NoInputError

SOUND = ROOT / "sample_logs" / "p2p-nvlink-8gpu" / "job.log"
READERS = (
    *("summarize", "paths", "hosts", "nics", "env", "ranks", "topology", "traffic", "events", "annotate"),
    *("anonymize --overwrite -o copies", "summarize --format junit", "diff", "check --policy policy.toml"),
    *("summarize --fail-on error", "diff --fail-on error"),
)
GATES = ("check", "--fail-on")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a sound log and one that nobody may read, also where the tests run as root, who may."""
    for name in ("sound.log", "shut.log"):
        (tmp_path / "logs" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "logs" / name).write_bytes(SOUND.read_bytes())
    (tmp_path / "policy.toml").write_text("world_size = 8\n")
    allowed = os.access

    def access(name: Any, mode: int, **options: Any) -> bool:
        return "shut" not in str(name) and allowed(name, mode, **options)

    monkeypatch.setattr(os, "access", access)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_unreadable_input_is_named_and_skipped(folder: Path) -> None:
    wrong: list[object] = []
    for command in READERS:
        one = [str(SOUND)] if command.startswith("diff") else []
        for several in (["logs"],) if one else (["logs"], ["logs/sound.log", "logs/shut.log"], ["logs/s*.log"]):
            done = invoke(*command.split(), *one, *several)
            status = 3 if any(word in command for word in GATES) else 0
            if (done.return_value or 0) != status or "shut.log: no read permission" not in done.stderr:
                wrong.append((command, several, done.return_value, done.stderr))
        with pytest.raises(NoInputError, match=r"shut.log: no read permission"):
            invoke(*command.split(), *one, "logs/shut.log")
    assert not wrong, folder
