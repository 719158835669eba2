"""A server reads below its folders, and nothing else, whatever a path looks like."""

from __future__ import annotations

import gzip
import os
import socket
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import sample_data
from assistant_client import call, problem, reader, values

from nccl_inspect.assistant import folders
from nccl_inspect.assistant.folders import Folders
from nccl_inspect.errors import NcclInspectError

LOG = sample_data.contents("peer-killed")[0]


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """A folder with a log; beside it lies a secret one."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.log").write_bytes(LOG)
    (tmp_path / "inside" / "sub").mkdir(parents=True)
    (tmp_path / "inside" / "sub" / "job.log").write_bytes(LOG)
    return tmp_path / "inside"


@pytest.mark.parametrize(
    "name",
    [
        "../outside/secret.log",
        "sub/../../outside/secret.log",
        "{outside}/secret.log",
        "{outside}",
        "/etc/passwd",
        "/",
        "..",
        "../*/secret.log",
        "../outside/*.log",
        "{outside}/*.log",
        "sub/*/../../../outside/*.log",
        "link.log",
        "folder/secret.log",
        "folder",
        "folder/*.log",
        "folder/**",
    ],
)
def test_what_lies_outside_is_refused(inside: Path, name: str) -> None:
    outside = inside.parent / "outside"
    (inside / "link.log").symlink_to(outside / "secret.log")
    (inside / "folder").symlink_to(outside)
    said = problem(call(inside, "summarize", logs=name.format(outside=outside)))
    assert "outside of the folders that may be read" in said or "'..' in a pattern" in said
    assert "peer" not in said


def test_links_that_lead_out_are_no_part_of_a_folder(inside: Path) -> None:
    (inside / "link.log").symlink_to(inside.parent / "outside" / "secret.log")
    (inside / "folder").symlink_to(inside.parent / "outside")
    (inside / "latest.log").symlink_to(inside / "sub" / "job.log")
    assert {file.name for file in Folders([str(inside)]).logs([str(inside)])} <= {
        str(inside / "sub" / "job.log"),
        str(inside / "latest.log"),
    }
    assert values(call(inside, "summarize", logs="latest.log"))["verdict"] == "failed"
    assert [file.name for file in Folders([str(inside)]).logs(["*.log"])] == [str(inside / "latest.log")]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*", ["sub"]),
        ("*/*.log", ["sub/job.log"]),
        ("**/*.log", ["sub/deep/er.log", "sub/job.log"]),
        ("s?b/*", ["sub/deep", "sub/job.log"]),
        ("sub/[j-k]*", ["sub/job.log"]),
        ("sub/**/*.log", ["sub/deep/er.log", "sub/job.log"]),
    ],
)
def test_a_pattern_lists_no_folder_outside(
    inside: Path, pattern: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (inside / "sub" / "deep").mkdir()
    (inside / "sub" / "deep" / "er.log").write_bytes(LOG)
    (inside / "folder").symlink_to(inside.parent / "outside")
    listed: list[str] = []
    scan = os.scandir

    def watched(path: Path) -> object:
        listed.append(os.path.realpath(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", watched)
    assert Folders([str(inside)])._matching(pattern) == [str(inside / name) for name in names]
    assert str(inside.parent / "outside") not in listed


@pytest.mark.parametrize("asked", [{"topology": ["missing.txt"]}, {"topology": ["sub"]}, {"policy": "missing.toml"}])
def test_a_policy_or_a_topology_that_cannot_be_read_is_named(inside: Path, asked: dict[str, object]) -> None:
    said = problem(call(inside, "check" if "policy" in asked else "summarize", logs="sub/job.log", **asked))
    assert "no such file" in said or "not a plain file" in said or "Is a directory" in said


@pytest.mark.parametrize(
    "name", ["-", "", " ", "http://127.0.0.1/job.log", "s3://bucket/job.log", "file:///etc/passwd"]
)
def test_what_is_no_path_is_refused(inside: Path, name: str) -> None:
    assert problem(call(inside, "summarize", logs=[name]))


@pytest.mark.parametrize("name", ["a\nb", "a\0b", "sub/nope.log", "*.nope", "~/job.log", "$HOME/job.log"])
def test_what_is_not_there_is_an_error_that_says_so(inside: Path, name: str) -> None:
    said = problem(call(inside, "summarize", logs=[name]))
    assert "\n" not in said
    assert "Traceback" not in said


def test_pipes_sockets_and_devices_are_not_opened(inside: Path) -> None:
    os.mkfifo(inside / "pipe.log")
    with socket.socket(socket.AF_UNIX) as listening:
        at = Path.cwd()
        os.chdir(inside)  # the address of a socket must be short
        try:
            listening.bind("socket.log")
        finally:
            os.chdir(at)
        for name in ("pipe.log", "socket.log"):
            assert "not a plain file" in problem(call(inside, "summarize", logs=name))
        assert values(call(inside, "summarize", logs="."))["verdict"] == "failed"
    assert "not a plain file" in problem(call(Path("/dev"), "summarize", logs="/dev/zero"))


def test_a_link_that_comes_after_the_check_is_not_followed(inside: Path) -> None:
    """Of the file, and of a folder above it."""
    secret = inside.parent / "outside" / "secret.log"
    (file,) = Folders([str(inside)]).logs(["sub/job.log"])
    assert b"".join(file.open()) == LOG
    (inside / "sub" / "job.log").unlink()
    (inside / "sub" / "job.log").symlink_to(secret)
    with pytest.raises(OSError, match="symbolic"):
        b"".join(file.open())
    (inside / "sub" / "job.log").unlink()
    (inside / "sub").rmdir()
    (inside.parent / "outside" / "job.log").write_bytes(LOG)
    (inside / "sub").symlink_to(inside.parent / "outside")
    with pytest.raises(OSError, match=r"directory|symbolic"):
        b"".join(file.open())


def test_a_pipe_that_comes_after_the_check_is_not_waited_for(inside: Path) -> None:
    (file,) = Folders([str(inside)]).logs(["sub/job.log"])
    (inside / "sub" / "job.log").unlink()
    os.mkfifo(inside / "sub" / "job.log")
    with pytest.raises(NcclInspectError, match="not a plain file"):
        b"".join(file.open())


@pytest.mark.parametrize("tool", ["topology", "policy"])
def test_other_files_are_confined_as_well(inside: Path, tool: str) -> None:
    outside = inside.parent / "outside" / "given.txt"
    outside.write_text("world_size = 4\n", encoding="utf-8")
    (inside / "given.txt").symlink_to(outside)
    for name in (str(outside), "given.txt", "../outside/given.txt"):
        if tool == "policy":
            result = call(inside, "check", logs="sub/job.log", policy=name)
        else:
            result = call(inside, "summarize", logs="sub/job.log", topology=name)
        assert "outside of the folders that may be read" in problem(result)
    (inside / "large.toml").write_bytes(b"#" * (folders.MAX_SMALL + 1))
    assert "larger than" in problem(call(inside, "check", logs="sub/job.log", policy="large.toml"))


def _packed(inside: Path) -> Iterator[Path]:
    with zipfile.ZipFile(inside / "logs.zip", "w") as archive:
        archive.writestr("job.log", LOG)
    yield inside / "logs.zip"
    with tarfile.open(inside / "logs.tar.gz", "w:gz") as tar:
        tar.add(inside / "sub" / "job.log", "job.log")
    yield inside / "logs.tar.gz"
    (inside / "job.log.gz").write_bytes(gzip.compress(LOG))
    yield inside / "job.log.gz"


def test_archives_are_read_as_on_the_command_line(inside: Path) -> None:
    for path in _packed(inside):
        found = values(call(inside, "summarize", logs=path.name))
        assert found["rule"] == "peer-death"
        around = values(call(inside, "evidence", logs=path.name, around=_place(inside, path), about=0))["around"]
        assert "Connection closed" in around[0]["quoted_log_text"]


def _place(inside: Path, path: Path) -> str:
    found = values(call(inside, "evidence", logs=path.name, rule="peer-death"))
    line = found["findings"][0]["lines"][-1]
    return f"{line['source']}:{line['line']}"


def test_too_much_is_refused(inside: Path) -> None:
    for number in range(5):
        (inside / f"{number}.log").write_bytes(LOG)
    few = reader(inside, max_entries=3)
    assert "more than 3 files" in problem(call(few, "summarize", logs="."))
    assert "more than 3 files" in problem(call(few, "summarize", logs="*.log"))
    assert "of logs" in problem(call(reader(inside, max_bytes=10), "summarize", logs="0.log"))


def test_several_folders_and_paths_below_the_second(inside: Path) -> None:
    both = Folders([str(inside), str(inside.parent / "outside")])
    assert [file.name for file in both.logs(["secret.log"])] == [str(inside.parent / "outside" / "secret.log")]
    assert both.names == [str(inside.resolve()), str((inside.parent / "outside").resolve())]


def test_a_folder_named_alike_is_another_one(tmp_path: Path) -> None:
    for name in ("logs", "logs-of-others"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "job.log").write_bytes(LOG)
    said = problem(call(tmp_path / "logs", "summarize", logs=str(tmp_path / "logs-of-others" / "job.log")))
    assert "outside of the folders" in said


def test_evidence_beside_the_log_is_read_with_a_folder() -> None:
    found = values(call(sample_data.FOLDER, "evidence", logs="run-loop"))
    assert found["files_beside"]
    assert values(call(sample_data.FOLDER, "summarize", logs="run-loop"))["rule"] == "collective-not-called"
