"""Answers of RAS, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dumps import LOG, MESH
from repository import TESTS

import nccl_inspect
from nccl_inspect import artifacts
from nccl_inspect.artifacts import ras

TEXT = (TESTS / "data" / "ras-answer.txt").read_text(encoding="utf-8")


def test_an_answer_as_text() -> None:
    assert artifacts.kind_of(TEXT.encode()) is ras.KIND
    answer = ras.read("x", TEXT.encode())
    assert answer.nccl_version == "2.27.5"
    assert [(lost.host, lost.pid, lost.is_dead, lost.rank) for lost in answer.lost] == [
        ("192.0.2.7", 4711, True, None),
        ("192.0.2.7", 4711, False, 3),
    ]
    (mismatch,) = answer.mismatches
    assert (mismatch.comm_id, mismatch.operation, mismatch.usual) == ("0xcafe", "AllReduce", 12)
    assert [(member.rank, member.launched) for member in mismatch.behind] == [(4, 9), (6, 0), (7, 0)]
    assert [(one.stage, one.what, [member.rank for member in one.members]) for one in answer.errors] == [
        ("Initialization", "Internal error", [5]),
        ("Asynchronous", "Remote process error", [0, 1]),
        ("Asynchronous", "System error", [2]),
    ]
    assert answer.errors[2].members[0].host == "fd00::7"
    assert [(one.what, one.count, [member.rank for member in one.members]) for one in answer.states] == [
        ("RUNNING", 60, []),
        ("NOCOMM", 2, [3, 4]),
        ("ABORT", 1, [6]),
    ]
    assert TEXT.splitlines()[answer.states[1].line - 1] == "  2 ranks have status NOCOMM"


def test_both_forms_say_the_same() -> None:
    for form in ("text", "json"):
        answer = ras.read(form, (MESH / "loop-eager" / f"ras.{form}").read_bytes())
        assert {member.rank for mismatch in answer.mismatches for member in mismatch.behind} == {1}


def test_an_answer_alone_is_judged(tmp_path: Path) -> None:
    (tmp_path / "ras.txt").write_text(TEXT, encoding="utf-8")
    (found,) = (one for one in nccl_inspect.read(tmp_path / "ras.txt").findings if one.rule == "process-unresponsive")
    assert (found.hosts, found.summary) == (["192.0.2.7"], "RAS has no answer from pid 4711 on 192.0.2.7")


def test_an_answer_of_other_types_stops_nobody(tmp_path: Path) -> None:
    data = (MESH / "loop-eager" / "ras.json").read_bytes()
    (tmp_path / "job.log").write_bytes(LOG)
    values: tuple[Any, ...] = ("x", -1, [], {"AllReduce": "7"}, 1.5)
    for key in ("rank", "pid", "cuda_dev", "collective_counts", "size", "host"):
        for value in values:

            def change_answer(found: dict[str, Any], key: str = key, value: Any = value) -> dict[str, Any]:
                return {**found, key: value} if key in found else found

            changed = json.dumps(json.loads(data, object_hook=change_answer))
            (tmp_path / "ras.json").write_text(changed, encoding="utf-8")
            (found,) = artifacts.inventory(str(tmp_path)).evidence
            assert found.kind == ras.KIND.title
            assert found.value or (found.problem or "").startswith("damaged: "), f"{key} = {value}"


def test_an_answer_as_json() -> None:
    def rank(number: int, **status: Any) -> dict[str, Any]:
        return {"rank": number, "host": "192.0.2.7", "pid": 10 + number, "cuda_dev": number, "status": status}

    comm = {
        "hash": "0xab",
        "size": 5,
        "ranks": [
            rank(0, init_state=0, async_error=6),
            rank(1, init_state=0, async_error=2),
            rank(2, init_state=0, async_error=7, abort_flag=True),
        ],
        "missing_ranks": [rank(3, unresponsive=False, considered_dead=False), rank(4, unresponsive=True)],
    }
    document = {"nccl_version": "2.30.3", "communicators_count": 1, "communicators": [comm]}
    answer = ras.read("x", json.dumps(document).encode())
    assert [(one.what, [member.rank for member in one.members]) for one in answer.errors] == [
        ("System error", [1]),
        ("Remote process error", [0]),
    ]
    assert {one.what: [member.rank for member in one.members] for one in answer.states} == {
        "RUNNING": [0, 1],
        "ABORT": [2],
        "NOCOMM": [3],
    }
    assert [lost.rank for lost in answer.lost] == [4]
