"""``watch --ras``: RAS is asked beside the log, and names who lags while the job still runs."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from command_line import invoke
from terminals import EXE, PATIENCE, Piped, read_until
from watching import Watched

from nccl_inspect.extras.live import exit_conditions
from nccl_inspect.extras.live.ras import Asker
from nccl_inspect.extras.live.watch import Behind, Change, Resumed, Turn
from nccl_inspect.model.inventory import Artifact

INIT = "NCCL INFO ncclCommInitRankConfig comm 0x5 rank {0} nranks 4 cudaDev {0} nvmlDev {0} busId {0}000 commId {1} - "


def job(comm: str = "0x7", pid: int = 100) -> bytes:
    lines = [f"gpu:{pid + rank}:{pid + rank} [{rank}] {INIT.format(rank, comm)}" for rank in range(4)]
    begun = [line + phase for phase in ("Init START", "Init COMPLETE") for line in lines]
    paths = [
        f"gpu:{pid + r}:{200 + r} [{r}] NCCL INFO Channel 00/0 : {r}[{r}] -> {(r + 1) % 4}[{(r + 1) % 4}] via P2P/CUMEM"
        for r in range(4)
    ]
    return "".join(f"{line}\n" for line in (*begun, *paths)).encode()


def as_json(launched: dict[int, int], missing: dict[int, bool] | None = None) -> str:
    ranks: list[dict[str, Any]] = [{"rank": rank, "host": "192.0.2.7", "pid": 100 + rank} for rank in range(4)]
    here = [
        rank | {"collective_counts": {"AllReduce": launched[rank["rank"]]}}
        for rank in ranks
        if rank["rank"] in launched
    ]
    gone = [
        ranks[rank] | {"status": {"unresponsive": True, "considered_dead": dead}}
        for rank, dead in (missing or {}).items()
    ]
    comm = {"hash": "0x7", "size": 4, "ranks": here, "missing_ranks": gone}
    return json.dumps({"nccl_version": "2.30.3", "communicators_count": 1, "communicators": [comm]})


TEXT = """NCCL version 2.27.5 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Job summary
===========

Warnings
========

#0-0 (0000000000000007) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 12
  Rank 2 has launched up to operation 9 -- GPU 2 managed by process 102 on node 192.0.2.7

"""


class Ras:
    """Answers as src/ras/client_support.cc does: a command by a line, a status by all until the connection closes."""

    def __init__(self, answers: list[str], *, knows_json: bool = True) -> None:
        self.answers, self.knows_json = answers, knows_json
        self.server = socket.create_server(("127.0.0.1", 0))
        self.where = f"127.0.0.1:{self.server.getsockname()[1]}"

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            with suppress(OSError), connection, connection.makefile("rw") as stream:
                for line in stream:
                    command = line.strip().upper()
                    if command == "VERBOSE STATUS":
                        stream.write(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
                        break
                    known = command.startswith("SET FORMAT") and self.knows_json
                    is_protocol = command.startswith("CLIENT PROTOCOL")
                    stream.write(
                        "SERVER PROTOCOL 2\n" if is_protocol else "OK\n" if known else "ERROR: Unknown command\n"
                    )
                    stream.flush()


@contextmanager
def serving(answers: list[str], **how: bool) -> Iterator[Ras]:
    ras = Ras(answers, **how)
    threading.Thread(target=ras.serve, daemon=True).start()
    try:
        yield ras
    finally:
        ras.server.shutdown(socket.SHUT_RDWR)
        ras.server.close()


def asked(*answers: str, **how: bool) -> list[Artifact | str]:
    with serving(list(answers), **how) as ras:
        asker = Asker(ras.where, 1)
        return [asker.ask() for _ in answers]


EVEN, AHEAD, LATE = (dict.fromkeys(range(4), count) for count in (12, 13, 14))
LATE[2] = 9
CASES: dict[str, tuple[list[Artifact | str], list[int], str]] = {
    "a rank launched fewer operations": (
        asked(as_json(EVEN), as_json(AHEAD), as_json(LATE), as_json(LATE)),
        [2],
        "rank 2: 9 AllReduce, others 14, in communicator 0x7",
    ),
    "the answers are text": (
        asked(TEXT, TEXT, knows_json=False),
        [2],
        "rank 2: 9 AllReduce, others 12, in communicator 0x7",
    ),
    "a process does not answer": (
        asked(*[as_json({0: 9, 1: 9, 2: 9}, {3: False})] * 2),
        [3],
        "rank 3: does not answer",
    ),
    "a process is dead": (asked(*[as_json({0: 9, 1: 9, 2: 9}, {3: True})] * 2), [3], "rank 3: considered dead"),
    "all are in step": (asked(as_json(EVEN), as_json(EVEN)), [], ""),
    "it was asked once": (asked(as_json(LATE)), [], ""),
    "operations are launched": (asked(as_json(LATE), as_json(LATE | {2: 10})), [], ""),
    "it answers once more": ([*asked(as_json(LATE)), "Connection refused"], [], ""),
}


def test_who_lags_is_named_while_the_job_runs() -> None:
    wrong: list[object] = []
    for name, (answers, ranks, words) in CASES.items():
        watched = Watched()
        watched.watch.feed(job())
        watched.after(10)
        for answer in answers:
            assert not list(watched.watch.take(answer)), name
            news = watched.after(10)
            wrong += [(name, "too early", one) for one in news if isinstance(one, Behind)]
        news = watched.after(61)
        found = [one for one in news if isinstance(one, Behind)]
        alarm = exit_conditions.alarm(news, ["stall"])
        said = [(one.late.ranks, one.late.words) for one in found]
        wrong += [(name, said)] if said != ([(ranks, [words])] if ranks else []) else []
        wrong += [(name, alarm)] if (alarm is not None) != bool(ranks) else []
        rules = {one.finding.rule for one in news if isinstance(one, Change)}
        wrong += [(name, rules)] if bool(rules) != bool(ranks) else []
        assert not [one for one in watched.after(10) if isinstance(one, Behind)], f"{name}: told twice"
    assert not wrong


def test_progress_takes_back_what_was_said() -> None:
    watched = Watched()
    watched.watch.feed(job())
    watched.after(10)
    for answer in asked(as_json(LATE), as_json(LATE)):
        list(watched.watch.take(answer))
    assert any(isinstance(one, Behind) for one in watched.after(61))
    for answer in asked(as_json(LATE | {2: 9}, None), as_json({2: 9}, {0: True, 1: True, 3: True})):
        assert not list(watched.watch.take(answer)), "that processes are gone is no progress"
    assert watched.watch.status().stalled
    assert watched.watch.status().ras == "RAS: rank 2 behind"
    (moved,) = asked(as_json(EVEN))
    assert [type(one) for one in watched.watch.take(moved)] == [Resumed]
    news = watched.after(10)
    assert {(one.how, one.finding.rule) for one in news if isinstance(one, Change)} == {("gone", "ranks-out-of-step")}
    assert [one.job.verdict for one in news if isinstance(one, Turn)] == ["ok"]
    assert not watched.watch.status().stalled
    list(watched.watch.take("Connection refused"))
    assert watched.watch.status().ras == "no answer from RAS (Connection refused)"
    other = Watched()
    other.watch.feed(job("0x8", 300))
    other.after(10)
    for answer in asked(as_json(LATE), as_json(LATE)):
        list(other.watch.take(answer))
    assert not [one for one in other.after(61) if isinstance(one, Behind)], "RAS of another job accuses nobody"
    with pytest.raises(Exception, match="needs HOST:PORT"):
        invoke("watch", "--ras", "localhost")


@pytest.mark.slow
def test_the_command_asks_beside_the_log() -> None:
    with serving([as_json(LATE)]) as ras:
        options = ["--ras", ras.where, "--interval", "0.04", "--settle", "0.1", "--stall", "0.3", "--exit-on", "stall"]
        with Piped([*EXE, "watch", *options], bufsize=0) as process:
            process.stdin.write(job())
            shown = read_until(process.stdout, b"in communicator 0x7\n")
            assert b"STALLED: by RAS no operation was launched for " in shown
            assert process.wait(PATIENCE) == 1
