"""What an on-call has of a recorded mesh: parts of its log and of its evidence, under other names, in other orders."""

from __future__ import annotations

import lzma
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from mesh_verdicts import MESHES, Recording, recordings

from nccl_inspect.model.job import Job

HOSTS, RANKS = range(4), range(8)
LOCAL = 2
"""Ranks of a host."""
_HOST = re.compile(r"gpu-node-(\d)")
_RANK = re.compile(r"(?:\[rank|  what\(\):  \[PG ID 0 PG GUID 0\(default_pg\) Rank )(\d)\]")
_AGENT = re.compile(r"[A-Z]\d{4} [\d:.]+ (\d+) torch/")
_PROCESS = re.compile(r"gpu-node-(\d):(\d+):")
_NAMED = re.compile(r"(?:process|pid:?) (\d+)")


class Line(NamedTuple):
    """A line of a log with the host that printed it."""

    text: str
    host: int
    rank: int | None


@cache
def lines_of(recording: Recording) -> tuple[Line, ...]:
    """The log: lines of launchers belong to the host whose processes they name."""
    texts = lzma.decompress((recording.folder / "job.log.xz").read_bytes()).decode(errors="replace").splitlines(True)
    homes = {match[2]: int(match[1]) for text in texts if (match := _PROCESS.search(text))}
    agents: dict[str, int] = {}
    agent = ""
    for text in texts:
        if match := _AGENT.match(text):
            agent = match[1]
        if agent and (named := _NAMED.search(text)) and named[1] in homes:
            agents.setdefault(agent, homes[named[1]])
    lines: list[Line] = []
    host, rank = 0, None
    for text in texts:
        if match := _AGENT.match(text):
            host, rank = agents.get(match[1], host), None
        elif match := _RANK.match(text):
            rank = int(match[1])
            host = rank // LOCAL
        elif match := _HOST.search(text):
            host, rank = int(match[1]), None
        lines.append(Line(text, host, rank))
    return tuple(lines)


def text_of(lines: Iterable[Line]) -> str:
    """Lines as a log."""
    return "".join(line.text for line in lines)


def on(recording: Recording, hosts: Collection[int]) -> str:
    """What some hosts printed."""
    return text_of(line for line in lines_of(recording) if line.host in hosts)


def by_host(recording: Recording, order: Iterable[int] = HOSTS) -> str:
    """The log, one host behind the other."""
    return "".join(on(recording, {host}) for host in order)


def warnings_of(recording: Recording) -> str:
    """The log of a job with ``NCCL_DEBUG=WARN``."""
    return text_of(line for line in lines_of(recording) if "NCCL INFO" not in line.text)


def until_timeout(recording: Recording) -> str:
    """The log up to the first rank that gives up."""
    lines = lines_of(recording)
    ends = (place for place, line in enumerate(lines) if "Watchdog caught" in line.text)
    return text_of(lines[: next(ends, len(lines)) + 1])


def in_pods(recording: Recording) -> str:
    """The log as ``kubectl logs --prefix`` prints it."""
    return "".join(f"[pod/train-worker-{line.host}/main] {line.text}" for line in lines_of(recording))


class Piece(NamedTuple):
    """Part of what a job left."""

    name: str
    logs: Callable[[Recording], dict[str, str]]
    """The logs by their names."""
    dumps: Collection[int] = ()
    """Ranks of which there is a dump."""
    has_ras: bool = False
    dump_name: str = "nccl_trace_rank_{}"


def _whole(recording: Recording) -> dict[str, str]:
    return {"job.log": text_of(lines_of(recording))}


def _of(hosts: Collection[int]) -> Callable[[Recording], dict[str, str]]:
    return lambda recording: {"job.log": on(recording, hosts)}


def _files(hosts: Collection[int], name: str = "node-{}.log") -> Callable[[Recording], dict[str, str]]:
    return lambda recording: {name.format(host): on(recording, {host}) for host in hosts}


def _one(make: Callable[[Recording], str]) -> Callable[[Recording], dict[str, str]]:
    return lambda recording: {"job.log": make(recording)}


def _others(hosts: Iterable[int]) -> list[int]:
    return [host for host in HOSTS if host not in hosts]


def _ranks(hosts: Iterable[int]) -> list[int]:
    return [rank for host in hosts for rank in (host * LOCAL, host * LOCAL + 1)]


def pieces() -> Iterator[Piece]:
    """All parts that are tried."""
    yield Piece("log", _whole)
    yield Piece("everything", _whole, RANKS, True)
    yield Piece("log and RAS", _whole, (), True)
    yield Piece("log and dumps", _whole, RANKS)
    for host in HOSTS:
        rest = _others([host])
        yield Piece(f"log of node {host}", _of([host]))
        yield Piece(f"log without node {host}", _of(rest))
        yield Piece(f"files without node {host}", _files(rest))
        yield Piece(f"log of node {host}, all evidence", _of([host]), RANKS, True)
        yield Piece(f"log without node {host}, all evidence", _of(rest), RANKS, True)
        yield Piece(f"nothing of node {host}", _of(rest), _ranks(rest), False)
        yield Piece(f"nothing of node {host}, but RAS", _of(rest), _ranks(rest), True)
        yield Piece(f"log, no dumps of node {host}", _whole, _ranks(rest), False)
        yield Piece(f"dumps of node {host} only", _whole, _ranks([host]), False)
    for rank in (4, 5):
        yield Piece(f"log, dumps but of rank {rank}", _whole, [other for other in RANKS if other != rank])
    yield Piece("warnings", _one(warnings_of))
    yield Piece("warnings, all evidence", _one(warnings_of), RANKS, True)
    yield Piece("warnings, RAS", _one(warnings_of), (), True)
    yield Piece("cut at the time-out", _one(until_timeout))
    yield Piece("cut at the time-out, all evidence", _one(until_timeout), RANKS, True)
    yield Piece("other names", _files(HOSTS, "out.{}"), RANKS, True, "gpu-node_rank{}.bin")
    yield Piece("a file for each node", _files(HOSTS))
    yield Piece("a file for each node, all evidence", _files(HOSTS), RANKS, True)
    for order in ((3, 2, 1, 0), (2, 0, 3, 1)):
        name = "".join(map(str, order))
        yield Piece(f"nodes in the order {name}", _one(partial(by_host, order=order)))
    yield Piece("kubectl", _one(in_pods))
    yield Piece("kubectl, all evidence", _one(in_pods), RANKS, True)


def write(piece: Piece, recording: Recording, folder: Path) -> None:
    """Put a part of a recording into a folder.

    Args:
        piece: which part.
        recording: of which job.
        folder: that is there and empty.
    """
    for name, text in piece.logs(recording).items():
        (folder / name).write_text(text, encoding="utf-8")
    for rank in piece.dumps:
        dump = recording.folder / f"nccl_trace_rank_{rank}.xz"
        if dump.exists():
            (folder / piece.dump_name.format(rank)).write_bytes(lzma.decompress(dump.read_bytes()))
    for name in ("ras.json", "ras.text") if piece.has_ras else ():
        answer = recording.folder / f"{name}.xz"
        if answer.exists():
            (folder / name).write_bytes(lzma.decompress(answer.read_bytes()))


_OBSERVERS = ("socket-instead-of-rdma", "p2p-disabled-by-env", "rendezvous-failed", "bootstrap-connect-refused")
"""Rules whose findings name the ranks that see a fault, or a slow network that all recordings have."""
_UNSEEN = ("no output", "no dump of")
"""Words of findings that name ranks because nothing of them is there."""


def blamed(job: Job) -> list[int]:
    """The ranks that the leading finding accuses by what is known of them."""
    findings = [finding for finding in job.findings if finding.rule not in _OBSERVERS[:2]]
    if not findings or findings[0].rule in _OBSERVERS:
        return []
    leading = findings[0]
    only_waits = leading.rule == "watchdog-timeout" and not re.search("suspect|likely began with", leading.summary)
    only_starts = leading.rule == "hang-in-init" and "did not join" not in leading.summary
    return [] if only_waits or only_starts or any(words in leading.summary for words in _UNSEEN) else leading.ranks


def mesh() -> list[Recording]:
    """The recordings of four nodes."""
    return recordings(MESHES[1])
