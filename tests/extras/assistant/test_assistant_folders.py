"""A server reads below its folders, and nothing else, whatever a path looks like."""

from __future__ import annotations

import gzip
import os
import socket
import tarfile
import zipfile
from pathlib import Path

import pytest
import sample_data
from assistant_client import call, problem, reader, values

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras.assistant.reader import MAX_SMALL, Folders

pytestmark = pytest.mark.slow

LOG = sample_data.contents("peer-killed")[0]
OUTSIDE = "outside of the folders that may be read"


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """Return a folder with a log; beside it lies a secret one."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.log").write_bytes(LOG)
    (tmp_path / "inside" / "sub").mkdir(parents=True)
    (tmp_path / "inside" / "sub" / "job.log").write_bytes(LOG)
    return tmp_path / "inside"


def test_what_lies_outside_is_refused(inside: Path) -> None:
    outside = inside.parent / "outside"
    (inside / "link.log").symlink_to(outside / "secret.log")
    (inside / "folder").symlink_to(outside)
    (inside.parent / "inside-of-others").mkdir()
    (inside.parent / "inside-of-others" / "job.log").write_bytes(LOG)
    wrong: list[tuple[str, str]] = []
    for name in (
        *("../outside/secret.log", "sub/../../outside/secret.log", f"{outside}/secret.log", f"{outside}"),
        *("/etc/passwd", "/", "..", "../*/secret.log", "../outside/*.log", f"{outside}/*.log"),
        *("sub/*/../../../outside/*.log", "link.log", "folder/secret.log", "folder", "folder/*.log", "folder/**"),
        f"{inside}-of-others/job.log",
    ):
        with pytest.raises(NcclInspectError) as refused:
            Folders([str(inside)]).logs([name])
        if not (OUTSIDE in str(refused.value) or "'..' in a pattern" in str(refused.value)):
            wrong.append((name, str(refused.value)))
    assert not wrong
    assert OUTSIDE in problem(call(inside, "summarize", logs="folder/secret.log"))


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


def test_a_pattern_lists_no_folder_outside(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (inside / "sub" / "deep").mkdir()
    (inside / "sub" / "deep" / "er.log").write_bytes(LOG)
    (inside / "folder").symlink_to(inside.parent / "outside")
    listed: list[str] = []
    scan = os.scandir

    def watch_open(path: Path) -> object:
        listed.append(os.path.realpath(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", watch_open)
    patterns = {
        "*": ["sub"],
        "*/*.log": ["sub/job.log"],
        "**/*.log": ["sub/deep/er.log", "sub/job.log"],
        "s?b/*": ["sub/deep", "sub/job.log"],
        "sub/[j-k]*": ["sub/job.log"],
        "sub/**/*.log": ["sub/deep/er.log", "sub/job.log"],
    }
    found = {pattern: Folders([str(inside)])._list_matching(pattern) for pattern in patterns}
    assert found == {pattern: [str(inside / name) for name in names] for pattern, names in patterns.items()}
    assert str(inside.parent / "outside") not in listed


def test_what_cannot_be_read_is_an_error_of_one_line(inside: Path) -> None:
    for name in (
        *("-", "", " ", "http://127.0.0.1/job.log", "s3://bucket/job.log", "file:///etc/passwd"),
        *("a\nb", "a\0b", "sub/nope.log", "*.nope", "~/job.log", "$HOME/job.log"),
    ):
        with pytest.raises(NcclInspectError):
            Folders([str(inside)]).logs([name])
    assert "\n" not in problem(call(inside, "summarize", logs=["a\nb"]))
    for tool, more, says in (
        ("summarize", {"topology": ["missing.txt"]}, "no such file"),
        ("summarize", {"topology": ["sub"]}, "not a plain file"),
        ("check", {"policy": "missing.toml"}, "no such file"),
    ):
        assert says in problem(call(inside, tool, logs="sub/job.log", **more)), more


def test_pipes_sockets_and_devices_are_not_opened(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(inside / "pipe.log")
    monkeypatch.chdir(inside)  # the address of a socket must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket.log")
        for name in ("pipe.log", "socket.log"):
            with pytest.raises(NcclInspectError, match="not a plain file"):
                Folders([str(inside)]).logs([name])
        assert values(call(inside, "summarize", logs="."))["verdict"] == "failed"
    assert "not a plain file" in problem(call(Path("/dev"), "summarize", logs="/dev/zero"))


def test_what_comes_after_the_check_is_not_followed(inside: Path) -> None:
    """A link in the place of the file, or of a folder above it, and a pipe."""
    log, outside = inside / "sub" / "job.log", inside.parent / "outside"
    (file,) = Folders([str(inside)]).logs(["sub/job.log"])
    assert b"".join(file.open()) == LOG
    log.unlink()
    log.symlink_to(outside / "secret.log")
    with pytest.raises(OSError, match="symbolic"):
        b"".join(file.open())
    log.unlink()
    os.mkfifo(log)
    with pytest.raises(NcclInspectError, match="not a plain file"):
        b"".join(file.open())
    log.unlink()
    log.parent.rmdir()
    (outside / "job.log").write_bytes(LOG)
    log.parent.symlink_to(outside)
    with pytest.raises(OSError, match=r"directory|symbolic"):
        b"".join(file.open())


def test_other_files_are_confined_as_well(inside: Path) -> None:
    outside = inside.parent / "outside" / "given.txt"
    outside.write_text("world_size = 4\n", encoding="utf-8")
    (inside / "given.txt").symlink_to(outside)
    for name in (str(outside), "given.txt", "../outside/given.txt"):
        for tool, more in (("check", {"policy": name}), ("summarize", {"topology": name})):
            assert OUTSIDE in problem(call(inside, tool, logs="sub/job.log", **more))
    (inside / "large.toml").write_bytes(b"#" * (MAX_SMALL + 1))
    assert "larger than" in problem(call(inside, "check", logs="sub/job.log", policy="large.toml"))


def test_archives_are_read_as_on_the_command_line(inside: Path) -> None:
    with zipfile.ZipFile(inside / "logs.zip", "w") as archive:
        archive.writestr("job.log", LOG)
    with tarfile.open(inside / "logs.tar.gz", "w:gz") as tar:
        tar.add(inside / "sub" / "job.log", "job.log")
    (inside / "job.log.gz").write_bytes(gzip.compress(LOG))
    for name in ("logs.zip", "logs.tar.gz", "job.log.gz"):
        (finding,) = values(call(inside, "evidence", logs=name, rule="peer-death"))["findings"]
        place = f"{finding['evidence'][-1]['source']}:{finding['evidence'][-1]['line']}"
        around = values(call(inside, "evidence", logs=name, around=place, about=0))["around"]
        assert "Connection closed" in around[0]["quoted_log_text"]


def test_too_much_is_refused(inside: Path) -> None:
    for number in range(5):
        (inside / f"{number}.log").write_bytes(LOG)
    for name in (".", "*.log"):
        assert "more than 3 files" in problem(call(reader(inside, max_entries=3), "summarize", logs=name))
    assert "of logs" in problem(call(reader(inside, max_bytes=10), "summarize", logs="0.log"))


def test_several_folders_and_paths_below_the_second(inside: Path) -> None:
    both = Folders([str(inside), str(inside.parent / "outside")])
    assert [file.name for file in both.logs(["secret.log"])] == [str(inside.parent / "outside" / "secret.log")]
    assert both.names == [str(inside.resolve()), str((inside.parent / "outside").resolve())]
