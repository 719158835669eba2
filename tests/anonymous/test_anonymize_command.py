"""``nccl-inspect anonymize`` as a command: pipes, folders, archives, errors."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import sample_data
from anonymized_logs import PRIVATE, anonymized

import nccl_inspect
from nccl_inspect.cli import cli
from nccl_inspect.errors import NoInputError

RUN = [sys.executable, "-c", "from nccl_inspect.cli import main; main()"]


def run(*words: object, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*RUN, "anonymize", *map(str, words)], input=data, capture_output=True)


def test_what_is_piped_in_comes_out(tmp_path: Path) -> None:
    done = run(data=PRIVATE)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == anonymized(PRIVATE)[1][0]
    done = run("-", "-o", tmp_path / "out.log", "--map", tmp_path / "names.json", data=PRIVATE)
    assert done.returncode == 0
    assert (tmp_path / "out.log").read_bytes() == anonymized(PRIVATE)[1][0]
    table = json.loads((tmp_path / "names.json").read_text())
    assert "gpu-a17" in table["names"]["host"]


def test_a_folder_becomes_a_folder(tmp_path: Path) -> None:
    source = sample_data.FOLDER / "debug-file-per-process"
    done = run(source, "-o", tmp_path / "out")
    assert done.returncode == 0
    assert re.fullmatch(
        rb"nccl-inspect: passed over: \S+/truth\.json \(neither a log nor evidence of a known kind\)\n", done.stderr
    )
    names = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.log"))
    assert names[:3] == ["job.log", "per-process/nccl.host-1.4182.log", "per-process/nccl.host-1.4183.log"]
    assert len(names) == 9
    assert nccl_inspect.read(str(tmp_path / "out")).verdict == nccl_inspect.read(str(source)).verdict
    assert run(source).stderr == b"nccl-inspect: several files; name a folder for them: -o FOLDER, or -o FILE.tar.gz\n"


def test_archives_are_unpacked_and_stay_in_the_folder(tmp_path: Path) -> None:
    archive = tmp_path / "logs.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("../gpu-a17.log", "b/gpu-a17.log", "b/gpu-a17.log.gz"):
            info = tarfile.TarInfo(name)
            info.size = len(PRIVATE)
            tar.addfile(info, io.BytesIO(PRIVATE))
    assert run(archive, "-o", tmp_path / "out").returncode == 0
    names = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.log"))
    assert names == ["out/b/2-host-1.log", "out/b/host-1.log", "out/host-1.log"]


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("hello\n")
    with pytest.raises(NoInputError, match=r"job\.log: no NCCL line among 1 line;"):
        cli.main(["anonymize", str(tmp_path / "job.log"), "-o", str(tmp_path / "out")], standalone_mode=False)
    assert not (tmp_path / "out").exists()
    with pytest.raises(NoInputError, match="no such file"):
        cli.main(["anonymize", str(tmp_path / "no.log")], standalone_mode=False)
    (tmp_path / "good.log").write_bytes(PRIVATE)
    done = run(tmp_path / "good.log", tmp_path / "no.log", "-o", tmp_path / "out.log")
    assert done.returncode == 0
    assert b"no such file" in done.stderr
    assert (tmp_path / "out.log").is_file()
    assert run(tmp_path / "good.log", "-o", tmp_path / "no" / "out.log").returncode == 2
