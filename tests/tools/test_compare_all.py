"""The tool that compares all dialects at once, on tiny repositories made up for it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import compare_all
import pytest

KNOWN = 'INFO(NCCL_INIT, "cudaDriverVersion %d", version);\n'
UNKNOWN = 'WARN("The moon is made of %s", cheese);\n'
STREAM = 'void f() { LOG(INFO) << "RxDM ready"; LOG(ERROR) << "The moon is made of " << cheese; }\n'


def git(tree: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(tree), *identity, *arguments], check=True, capture_output=True)


def repository(tree: Path, file: str, *releases: tuple[str, str]) -> None:
    """A clone with one file, whose content each release adds to."""
    path = tree / file
    path.parent.mkdir(parents=True)
    git(tree, "init", "-q")
    for tag, content in releases:
        path.write_text((path.read_text() if path.exists() else "") + content)
        git(tree, "add", ".")
        git(tree, "commit", "-qm", tag)
        if tag:
            git(tree, "tag", tag)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    repository(tmp_path / "nccl", "src/a.cc", ("v2.3.7-1", KNOWN), ("v2.30.3-1", KNOWN), ("v2.30.7-1", UNKNOWN))
    plugin = tmp_path / "google" / "nccl-plugin-gpudirect-tcpxo.git"
    repository(plugin, "dxs/a.cc", ("v1.0.16", ""), ("v1.0.17", STREAM))
    repository(tmp_path / "nccl-fastsocket", "net.cc", ("now", KNOWN))
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split() for line in capsys.readouterr().out.splitlines()[2:]]


def test_the_last_release_of_each_series_is_a_row(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_all.main(["--repos", str(folder)]) == 0
    rows = shown(capsys)
    assert [row[:2] for row in rows[:3]] == [["nccl", "v2.30.7-1"], ["tcpxo", "v1.0.16"], ["tcpxo", "v1.0.17"]]
    assert rows[0][3:] == ["1", "100.0", "1", "0.0"]
    assert rows[1][3:] == ["0", "-", "0", "-"]
    assert rows[2][3:] == ["1", "100.0", "1", "0.0"]
    assert rows[3][0] == "fastsocket"
    assert len(rows[3][1]) == 7, "the newest commit of a repository without releases"


def test_every_release_is_a_row(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_all.main(["--repos", str(folder), "--every", "--dialect", "nccl"]) == 0
    assert [row[1] for row in shown(capsys)] == ["v2.30.3-1", "v2.30.7-1"], "not what is older than the grammar"


def test_a_page_is_written_and_a_share_can_fail(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "coverage.md"
    assert compare_all.main(["--repos", str(folder), "--write", str(page), "--check", "90"]) == 1
    text = page.read_text()
    assert text.startswith("<!-- Written by tools/compare_all.py")
    assert "\n## tcpxo\n" in text
    assert "\n## rccl\n" not in text
    assert "| v2.30.7-1 |" in text


def test_a_folder_without_clones_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_all.main(["--repos", str(tmp_path)]) == 2
    assert "nccl: no clone of NVIDIA/nccl there" in capsys.readouterr().err
