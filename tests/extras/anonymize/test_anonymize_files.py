"""``nccl-inspect anonymize`` as a command: pipes, folders, archives, what ``collect`` wrote, what is passed over."""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import tarfile
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
import sample_data
from anonymized_evidence import FILES, HOST, LOG, PROJECT, USER, leaks, list_planted, run
from anonymized_logs import PRIVATE, anonymize_log
from command_line import execute
from repository import TESTS

import nccl_inspect
from nccl_inspect.errors import NcclInspectError, NoInputError
from nccl_inspect.extras.anonymize import cli_anonymize


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def list_written(folder: Path) -> dict[str, list[str]]:
    """Return the lines of the files, by their names, without numbers: names are numbered in the order of reading."""
    return {
        Path(name).name: re.sub(r"[0-9]+", "0", (folder / name).read_bytes().decode("latin-1")).splitlines()
        for name in names(folder)
    }


def test_what_is_piped_in_comes_out(tmp_path: Path) -> None:
    done = execute("anonymize", data=PRIVATE)
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", anonymize_log(PRIVATE)[1][0])
    args = ["-o", str(tmp_path / "out.log"), "--map", str(tmp_path / "names.json")]
    assert execute("anonymize", "-", *args, data=PRIVATE).returncode == 0
    assert (tmp_path / "out.log").read_bytes() == anonymize_log(PRIVATE)[1][0]
    assert "gpu-a17" in json.loads((tmp_path / "names.json").read_text())["names"]["host"]
    done = execute("anonymize", str(list_planted(tmp_path, "pods.json") / "pods.json"))
    assert json.loads(done.stdout)["kind"] == "Pod"


def test_a_folder_becomes_a_folder(tmp_path: Path) -> None:
    source = str(sample_data.FOLDER / "debug-file-per-process")
    done = execute("anonymize", source, "-o", str(tmp_path / "out"))
    assert done.returncode == 0
    passed_over = rb"nccl-inspect: passed over: \S+/truth\.json \(neither a log nor evidence of a known kind\)\n"
    assert re.fullmatch(passed_over, done.stderr)
    logs = names(tmp_path / "out")
    assert logs[:3] == ["job.log", "per-process/nccl.host-1.4182.log", "per-process/nccl.host-1.4183.log"]
    assert len(logs) == 9
    assert nccl_inspect.read(str(tmp_path / "out")).verdict == nccl_inspect.read(source).verdict
    several = b"nccl-inspect: several files; name a folder for them: -o FOLDER, or -o FILE.tar.gz\n"
    assert execute("anonymize", source).stderr == several


def test_archives_are_unpacked_and_stay_in_the_folder(tmp_path: Path) -> None:
    archive = tmp_path / "logs.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("../gpu-a17.log", "b/gpu-a17.log", "b/gpu-a17.log.gz"):
            info = tarfile.TarInfo(name)
            info.size = len(PRIVATE)
            tar.addfile(info, io.BytesIO(PRIVATE))
    run(archive, "-o", tmp_path / "out")
    assert names(tmp_path) == ["logs.tar.gz", "out/b/2-host-1.log", "out/b/host-1.log", "out/host-1.log"]


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("hello\n")
    with pytest.raises(NoInputError, match=r"job\.log: no NCCL line among 1 line;"):
        run(tmp_path / "job.log", "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(NoInputError, match="no such file"):
        run(tmp_path / "no.log")
    (tmp_path / "good.log").write_bytes(PRIVATE)
    done = execute("anonymize", "good.log", "no.log", "-o", "out.log", cwd=tmp_path)
    assert (done.returncode, b"no such file" in done.stderr) == (0, True)
    assert (tmp_path / "out.log").is_file()
    assert execute("anonymize", "good.log", "-o", "no/out.log", cwd=tmp_path).returncode == 2


def test_folders_that_are_not_empty_and_inputs_are_safe(tmp_path: Path) -> None:
    folder = list_planted(tmp_path / "in", "pods.json", "ras.json")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    with pytest.raises(NcclInspectError, match=r"not empty.*--overwrite"):
        run(folder, "-o", tmp_path / "out")
    run(folder, "-o", tmp_path / "out", "--overwrite")
    assert names(tmp_path / "out") == ["mine", "pods.json", "ras.json"]
    with pytest.raises(NcclInspectError, match="it holds an input"):
        run(folder, "-o", folder, "--overwrite")
    with pytest.raises(NcclInspectError, match="is one of the inputs"):
        run(folder / "pods.json", "-o", folder / "pods.json")
    assert (folder / "pods.json").read_bytes() == FILES["pods.json"]


def test_what_is_not_recognized_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = list_planted(tmp_path / "in", "ras.json")
    (folder / "notes.html").write_text(f"run by {USER} in /home/{USER}/x\n")
    (folder / "weights.bin").write_bytes(b"\0" * 9)
    (folder / "nccl_trace_rank_0").write_bytes(FILES[f"{PROJECT}_rank_0"][:-9])
    run(folder, "-o", tmp_path / "out")
    shown = capsys.readouterr().err
    assert "passed over: " in shown
    assert all(name in shown for name in ("notes.html (not a log", "weights.bin (", "nccl_trace_rank_0 (flight"))
    assert names(tmp_path / "out") == ["ras.json"]


def test_a_name_that_is_left_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "job.log").write_bytes(LOG + b"we thank quartz for all\n")
    (folder / "ras.json").write_text(FILES["ras.json"].decode().replace(HOST, "quartz"))
    run(folder, "-o", tmp_path / "out")
    assert ("quartz" in (tmp_path / "out" / "job.log").read_text()) == ("still names quartz" in capsys.readouterr().err)
    (folder / "one.log").write_bytes(LOG.replace(b"gpu-a17", b"man") + b"one man for all\n")
    for out, name in (("one.log", str(tmp_path / "one.log")), ("-", "<stdout>")):
        run(folder / "one.log", "-o", tmp_path / out if out != "-" else out)
        assert f"{name}: still names man; review it" in capsys.readouterr().err


@pytest.mark.slow
def test_packed_evidence_is_written_as_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = list_planted(tmp_path / "in", *FILES)
    (folder / "job.log").write_bytes(LOG)
    run(folder, "-o", tmp_path / "plain")
    assert len(names(tmp_path / "plain")) == len(FILES) + 1
    zipped = shutil.make_archive(str(tmp_path / "packed"), "zip", folder)
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert capsys.readouterr().err == ""
    (folder / "other.bin").write_bytes(b"\0")
    archive = shutil.make_archive(str(tmp_path / "packed"), "gztar", folder)
    for number, packed in enumerate((folder, Path(zipped), Path(archive))):
        run(packed, "-o", tmp_path / f"{number}")
        assert list_written(tmp_path / f"{number}") == list_written(tmp_path / "plain")
        assert leaks(tmp_path / f"{number}") == []
        assert ("other.bin" in capsys.readouterr().err) == (packed != Path(zipped))


def test_what_collect_writes_for_people_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "in"
    shutil.copytree(TESTS / "data" / "collected", folder)
    (list_planted(folder, "ras.json") / "job.log").write_bytes(LOG)
    for number, collection in enumerate((folder, shutil.make_archive(str(tmp_path / "packed"), "gztar", folder))):
        run(collection, "-o", tmp_path / f"{number}")
        assert names(tmp_path / f"{number}") == ["job.log", "ras.json"]
        assert capsys.readouterr().err.count("passed over: ") == len(names(folder)) - 2


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="files without a name can be opened again on Linux only")
def test_no_kill_leaves_piped_input_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a line\n")))
    with ExitStack() as stack:
        path = Path(cli_anonymize.keep_input("-", stack))
        assert path.read_bytes() == path.read_bytes() == b"a line\n"
        assert not [*tmp_path.iterdir()]
