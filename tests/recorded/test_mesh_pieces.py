"""Whom a report blames where only part of what a job left is at hand: never one rank that is innocent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mesh_pieces import Piece, blamed, mesh, on, pieces, write
from mesh_verdicts import Recording

import nccl_inspect
from nccl_inspect.errors import NoInputError

BROKEN = [recording for recording in mesh() if recording.culprit is not None]
QUICK = {
    "no-partner-lazy": ("log of node 0", "log without node 2", "nothing of node 1"),
    "order-eager": ("nothing of node 0", "cut at the time-out", "warnings, RAS"),
    "setting-lazy": ("a file for each node", "log of node 2", "files without node 3"),
    "p2p-off-lazy": ("a file for each node", "log of node 2", "log of node 0"),
    "size-eager": ("log without node 3", "warnings, RAS", "nothing of node 3"),
    "exception-eager": ("a file for each node", "nodes in the order 2031", "nothing of node 2, but RAS"),
    "sigkill-lazy": ("a file for each node", "nodes in the order 3210", "kubectl"),
}
VICTIMS = {("p2p-off-eager", "warnings"), ("p2p-off-eager", "warnings, RAS"), ("sigkill-lazy", "log of node 3")}
VICTIMS |= {("p2p-off-lazy", "warnings"), ("p2p-off-lazy", "warnings, RAS")}
"""The process that crashed is another one, and nothing else is in these lines."""
VICTIMS |= {(name, f"{piece}, all evidence") for name, piece in VICTIMS if "RAS" not in piece}


def check(recording: Recording, piece: Piece, folder: Path) -> None:
    write(piece, recording, folder)
    try:
        accused = blamed(nccl_inspect.read(folder))
    except NoInputError:
        return  # NCCL warned of nothing
    assert len(accused) != 1 or accused == [recording.culprit] or (recording.name, piece.name) in VICTIMS


@pytest.mark.parametrize(
    ("recording", "piece"),
    [
        pytest.param(recording, piece, id=f"{recording.name}: {piece.name}")
        for recording in BROKEN
        for piece in pieces()
        if piece.name in QUICK.get(recording.name, ())
    ],
)
def test_no_innocent_rank_is_blamed_alone(recording: Recording, piece: Piece, tmp_path: Path) -> None:
    check(recording, piece, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("piece", list(pieces()), ids=lambda piece: piece.name)
def test_no_innocent_rank_is_blamed_alone_by_any_part(piece: Piece, tmp_path: Path) -> None:
    for recording in BROKEN:
        folder = tmp_path / recording.name
        folder.mkdir()
        check(recording, piece, folder)


@pytest.mark.parametrize("name", ["exception-eager", "exception-lazy", "sigkill-eager", "sigkill-lazy"])
@pytest.mark.parametrize("part", ["a file for each node", "nodes in the order 3210", "nodes in the order 2031"])
def test_the_rank_that_died_leads_in_whichever_order_hosts_come(name: str, part: str, tmp_path: Path) -> None:
    """Lines of several files, or of several hosts one behind the other, have no order but that of their times."""
    (recording,) = (one for one in BROKEN if one.name == name)
    (piece,) = (one for one in pieces() if one.name == part)
    write(piece, recording, tmp_path)
    job = nccl_inspect.read(tmp_path)
    assert (job.findings[0].rule, job.findings[0].ranks) == ("peer-death", [5])


@pytest.mark.parametrize(
    ("log", "other"),
    [
        ("leave-eager", "no-partner-lazy"),
        ("loop-lazy", "order-eager"),
        ("even-eager", "no-partner-lazy"),
        ("even-eager", "order-eager"),
    ],
)
def test_dumps_of_another_run_are_not_used(log: str, other: str, tmp_path: Path) -> None:
    first, second = ({one.name: one for one in mesh()}[name] for name in (log, other))
    write(next(piece for piece in pieces() if piece.name == "log"), first, tmp_path)
    for rank in range(8):
        name = f"nccl_trace_rank_{rank}.xz"
        (tmp_path / name).write_bytes((second.folder / name).read_bytes())
    job = nccl_inspect.read(tmp_path)
    assert all("another run" in (artifact.problem or "") for artifact in job.artifacts)


_FIRST_WORDS = r"cpp:\d+\] \[Rank \d\] Watchdog caught|dump signal"


def _named(name: str) -> Recording:
    return next(recording for recording in mesh() if recording.name == name)


def test_dumps_are_used_whenever_processes_print_their_last_words(tmp_path: Path) -> None:
    """PyTorch repeats the time-out when it has aborted all communicators, and the end of a log may have only that."""
    write(next(piece for piece in pieces() if piece.name == "log and dumps"), _named("exception-eager"), tmp_path)
    log = tmp_path / "job.log"
    lines = [line for line in log.read_text().splitlines(True) if not re.search(_FIRST_WORDS, line)]
    later = [re.sub(r"10:(\d\d):", lambda time: f"10:{int(time[1]) + 7}:", line, count=1) for line in lines]
    log.write_text("".join(b if "terminated with" in b else a for a, b in zip(lines, later, strict=True)))
    assert [artifact.problem for artifact in nccl_inspect.read(tmp_path).artifacts] == [None] * 6


def test_the_line_of_one_rank_does_not_place_the_host_of_a_log(tmp_path: Path) -> None:
    """An excerpt may put it beside the output of another host."""
    (line,) = re.findall(r"(?m)^\[rank4\].* \[Rank 0\] Watchdog caught.*", on(_named("size-eager"), {2}))[:1]
    log = "".join(text for text in on(_named("size-eager"), {0}).splitlines(True) if not text.startswith("[rank"))
    (tmp_path / "job.log").write_text(log + line.replace("rank4", "rank12") + "\n")
    job = nccl_inspect.read(tmp_path)
    assert (job.world_size, job.ranks_seen) == (8, [0, 1])
