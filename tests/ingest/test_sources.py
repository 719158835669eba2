"""Inputs of all kinds: packed files, archives, folders, several at once, broken ones, interrupted ones."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
import sample_data
import zstandard
from command_line import invoke
from packed_logs import BACK, CHANNEL, run, tar, zipped

import nccl_inspect
from nccl_inspect.errors import NoInputError
from nccl_inspect.ingest.sources import blocks, log_detection

PER_RANK = sample_data.FOLDER / "debug-file-per-process" / "per-process"


def names_in(*inputs: Any) -> list[str]:
    return [source.name for source in blocks.find(list(inputs))]


def read(source: blocks.Source) -> bytes:
    return b"".join(blocks.raw_blocks(source))


def fill(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


# --- folders


def test_a_folder_gives_what_looks_like_a_log_in_natural_order(tmp_path: Path) -> None:
    wanted = {
        "attempt_0/2/stdout.log": CHANNEL,
        "attempt_0/2/stderr.log": b"",
        "attempt_0/10/stdout.log": BACK,
        "mpi/1/rank.0/stdout": CHANNEL,
        "mpi/1/rank.0/stderr": b"a warning\n",
        "nccl.host-a.4182.log": CHANNEL,
        "nccl.host-a.4182": CHANNEL,
        "slurm-123_4.out": CHANNEL,
        "job.o1234": CHANNEL,
        "job.log-20261120.gz": gzip.compress(CHANNEL),
        "odd-name": b"x\n" * 1000 + CHANNEL,
        "odd-packed": zstandard.compress(CHANNEL),
        "hole.log": bytes(100) + CHANNEL,
    }
    others = {
        "attempt_0/2/error.json": CHANNEL,
        ".hidden.log": CHANNEL,
        ".git/x.log": CHANNEL,
        "core": b"\x7fELF" + bytes(100) + CHANNEL,
        "core.4711": CHANNEL,
        "python.core": CHANNEL,
        "weights.safetensors": CHANNEL,
        "checkpoint-500/model.pt": CHANNEL,
        "binary.log": bytes(range(256)) * 10,
        "nulls.log": bytes(10_000),
        "random.log": random.Random(1).randbytes(10_000),
        "train": b"no line of it\n",
        "late": b"x" * 70_000 + CHANNEL,
        "notes.md": CHANNEL,
        "sources.tar.gz": tar({"a.c": b"int main;\n"}, "w:gz"),
    }
    fill(tmp_path, wanted | others)
    (tmp_path / "dangling.log").symlink_to("nowhere")
    os.mkfifo(tmp_path / "fifo.log")
    found = [Path(name).relative_to(tmp_path).as_posix() for name in names_in(str(tmp_path))]
    assert sorted(found) == sorted(wanted)
    assert found.index("attempt_0/2/stdout.log") < found.index("attempt_0/10/stdout.log")


def test_a_big_file_in_a_folder_is_not_read_to_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(CHANNEL)
    for name in ("model", "huge.log", "core.1"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 40)
    assert names_in(str(tmp_path)) == [str(tmp_path / "job.log")]


def test_an_archive_in_a_folder_is_read(tmp_path: Path) -> None:
    fill(tmp_path, {"node1.tgz": tar({"a.log": BACK}, "w:gz"), "node0.zip": zipped({"a.log": CHANNEL})})
    assert names_in(str(tmp_path)) == [f"{tmp_path}/node0.zip:a.log", f"{tmp_path}/node1.tgz:a.log"]


@pytest.mark.parametrize(
    "names", [["rank2", "rank10"], ["a/2/x", "a/10/x"], ["1a", "2", "10"], ["a", "a1", "a2b3", "a2b20"]]
)
def test_the_natural_order_counts(names: list[str]) -> None:
    backwards = names[::-1]
    assert sorted(backwards, key=log_detection.natural) == names


def test_a_glob_is_expanded(tmp_path: Path) -> None:
    fill(tmp_path, {"logs/rank10.log": BACK, "logs/rank2.log": CHANNEL, "logs/notes.txt": b"", "a[1].log": CHANNEL})
    assert names_in(f"{tmp_path}/logs/*.log") == [f"{tmp_path}/logs/rank2.log", f"{tmp_path}/logs/rank10.log"]
    assert names_in(f"{tmp_path}/**/rank2.log") == [f"{tmp_path}/logs/rank2.log"]
    assert names_in(f"{tmp_path}/a[1].log") == [f"{tmp_path}/a[1].log"]
    status, output, errors = run("summarize", "logs/*.txt.gz", cwd=tmp_path)
    assert (status, output, len(errors)) == (3, "", 1)
    assert "logs/*.txt.gz: no file matches; check the pattern" in errors[0]


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    fill(tmp_path, {"job.log": CHANNEL})
    (tmp_path / "latest.log").symlink_to("job.log")
    os.link(tmp_path / "job.log", tmp_path / "same.log")
    inputs = [str(tmp_path / "job.log"), tmp_path / "job.log", f"{tmp_path}/../{tmp_path.name}/job.log", str(tmp_path)]
    assert names_in(*inputs) == [str(tmp_path / "job.log")]
    assert names_in(CHANNEL, CHANNEL) == ["<bytes>", "<bytes>"]


# --- one that is bad


def test_a_bad_input_stops_only_itself(tmp_path: Path) -> None:
    cut = gzip.compress(BACK + random.Random(1).randbytes(3000).hex().encode())[:-1000]
    fill(tmp_path, {"a.log": CHANNEL, "cut.log": cut, "c.log": CHANNEL.replace(b"0[0] -> 1[1]", b"2[2] -> 3[3]")})
    args = ["a.log", "gone.log", "no*.log", "cut.log", "c.log"]
    status, output, errors = run("summarize", *args, cwd=tmp_path)
    assert status == 0
    assert [line.partition(";")[0] for line in errors] == [
        "nccl-inspect: gone.log: no such file",
        "nccl-inspect: no*.log: no file matches",
        "nccl-inspect: cut.log: the compressed data is damaged (it breaks off)",
    ]
    assert "not read     gone.log: no such file; check the path" in output
    status, output, _ = run("summarize", *args, "--format", "json", cwd=tmp_path)
    problems = {source["name"]: source["problem"] for source in json.loads(output)["sources"]}
    assert [name for name, problem in problems.items() if problem is None] == ["a.log", "c.log"]
    assert problems["gone.log"] == "gone.log: no such file; check the path"
    assert [(path["src"], path["dst"]) for path in json.loads(output)["paths"]] == [(0, 1), (1, 0), (2, 3)]
    for command in (["paths"], ["annotate"]):
        status, output, errors = run(*command, *args, cwd=tmp_path)
        assert (status, len(errors)) == (0, 3)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("jbo.log", "job.log"),
        ("job.log.gz", "job.log"),
        ("rank1.log", "rank1.log.gz"),
        ("rank1", "rank1.log.gz"),
        ("JOB.LOG", "job.log"),
        ("job.txt", "job.log"),
        ("ranks/rank1.log", ""),
        ("flder/inner.log", "folder/inner.log"),
        ("flder/other.log", ""),
        ("gone.log", ""),
    ],
)
def test_a_slip_in_a_file_name_gets_a_question(typed: str, meant: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    fill(tmp_path, {"job.log": CHANNEL, "rank1.log.gz": gzip.compress(CHANNEL), "folder/inner.log": CHANNEL})
    status, _, errors = run("summarize", typed, cwd=tmp_path)
    assert status == 3
    assert errors[0] == f"nccl-inspect: {typed}: no such file; " + (
        f"did you mean {meant}?" if meant else "check the path"
    )


def test_a_slip_in_the_name_of_another_file_gets_a_question(tmp_path: Path) -> None:
    fill(tmp_path, {"job.log": CHANNEL, "policy.toml": b"", "topo.xml": b"<system/>"})
    for option, typed, meant in (("--config", "polcy.toml", "policy.toml"), ("--topology", "topo.xlm", "topo.xml")):
        _, _, errors = run("summarize", "job.log", option, typed, cwd=tmp_path)
        assert errors == [f"nccl-inspect: {typed}: No such file or directory; did you mean {meant}?"]


def test_only_when_nothing_can_be_read_it_is_an_error(tmp_path: Path) -> None:
    fill(tmp_path, {"other.log": b"one line\n"})
    for args in (["gone.log", "lost.log"], ["gone.log", "lost.log", "other.log"]):
        status, output, errors = run("summarize", *args, cwd=tmp_path)
        assert (status, output, len(errors)) == (3, "", 1)
        assert "gone.log: no such file" in errors[0]
        assert "1 more cannot be read" in errors[0]
        assert ("the other 1 hold no NCCL line" in errors[0]) == (len(args) == 3)
    status, output, errors = run("annotate", "gone.log", "lost.log", cwd=tmp_path)
    assert (status, output, len(errors)) == (3, "", 1)


def test_many_bad_inputs_do_not_flood_stderr(tmp_path: Path) -> None:
    fill(tmp_path, {"a.log": CHANNEL})
    _, output, errors = run("summarize", "a.log", *(f"gone{number}.log" for number in range(50)), cwd=tmp_path)
    assert len(errors) == 21
    assert errors[-1] == "nccl-inspect: 30 more inputs could not be read"
    assert output.count("gone") < 10


def test_events_of_all_inputs_come_before_the_error(tmp_path: Path) -> None:
    found = []
    with pytest.raises(NoInputError, match="gone"):
        for event in nccl_inspect.events([CHANNEL, tmp_path / "gone.log", BACK]):
            found.append(event.message)
    assert len(found) == 2


# --- ranks that are missing


def test_ranks_without_a_line_are_named() -> None:
    files = sorted(map(str, PER_RANK.iterdir()))
    everything = nccl_inspect.read(files)
    assert everything.ranks_seen == list(range(8))
    left_out = next(file for file in files if nccl_inspect.read(file).ranks_seen == [6])
    rest = [file for file in files if file != left_out]
    assert nccl_inspect.read(rest).ranks_seen == [0, 1, 2, 3, 4, 5, 7]
    output = " ".join(invoke("summarize", *rest).stdout.split())
    assert "8 ranks, of which 0-5,7 seen; rank 6 has no line in these 7 files; 2 hosts" in output
    one = " ".join(invoke("summarize", left_out).stdout.split())
    assert "8 ranks, only rank 6 seen; ranks 0-5,7 have no line in this log; 1 host" in one
    assert "has no line" not in invoke("summarize", *files).stdout
