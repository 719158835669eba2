"""Bytes as they come: lines that wait for their end, files that grow, are cut and replaced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import sample_data
from command_line import invoke

from nccl_inspect.live.tail import Note, Piece, Splitter, Waiter, follow


def test_a_line_waits_for_its_end() -> None:
    splitter = Splitter()
    assert [list(splitter.split(data)) for data in (b"on", b"e\r\ntw", b"o", b"\n\nthr")] == [
        [],
        [b"one"],
        [],
        [b"two", b""],
    ]
    (rest,) = splitter.rest()
    assert (list(rest), rest.size) == ([b"thr"], 0)
    assert list(splitter.rest()) == []


def test_each_object_of_a_file_of_docker_is_a_line_at_once() -> None:
    splitter = Splitter()
    lines = [json.dumps({"log": f"a:1:1 [0] NCCL INFO {n}\n", "stream": "stdout"}).encode() + b"\n" for n in range(3)]
    assert [len(splitter.split(line).lines) for line in lines] == [1, 1, 1]


@pytest.mark.parametrize("indent", [None, 1])
def test_an_export_is_watched_as_it_is_summarized(indent: int | None, tmp_path: Path) -> None:
    lines = sample_data.contents("peer-killed")[0].decode().splitlines()
    document = {"hits": {"hits": [{"_source": {"message": line}} for line in lines]}}
    log = tmp_path / "export.json"
    log.write_text(json.dumps(document, indent=indent))
    assert invoke("watch", "--until-end", str(log)).stdout == invoke("summarize", str(log)).stdout


def following(pieces: Iterator[Piece]) -> list[Piece]:
    """What comes until nothing comes any more."""
    found: list[Piece] = []
    for piece in pieces:
        if piece is None:
            break
        found.append(piece)
    return found


def test_a_file_is_followed_from_before_it_exists_until_it_is_cut_and_replaced(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    pieces = follow(log, Waiter(0.001))
    (waiting,) = following(pieces)
    assert isinstance(waiting, Note)
    assert "not there yet" in waiting.text
    log.write_bytes(b"one\n")
    assert following(pieces) == [b"one\n"]
    with log.open("ab") as file:
        file.write(b"two\n")
    assert following(pieces) == [b"two\n"]
    log.write_bytes(b"3\n")
    cut, data = following(pieces)
    assert isinstance(cut, Note)
    assert (cut.begins, data) == (True, b"3\n")
    log.write_bytes(b"another one, and longer than what was there\n")
    anew, data = following(pieces)
    assert isinstance(anew, Note)
    assert (anew.begins, data) == (True, b"another one, and longer than what was there\n")
    log.rename(tmp_path / "job.log.1")
    assert following(pieces) == []
    with (tmp_path / "job.log.1").open("ab") as file:
        file.write(b"last words\n")
    log.write_bytes(b"4\n")
    said = following(pieces)
    assert said[0] == b"last words\n"
    assert isinstance(said[1], Note)
    assert "replaced" in said[1].text
    assert said[2:] == [b"4\n"]
