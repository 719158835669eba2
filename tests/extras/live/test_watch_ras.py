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

from nccl_inspect.extras.live.watch import Asker, Change, Resumed, Stall, Turn, find_alarm

INIT = "NCCL INFO ncclCommInitRankConfig comm 0x5 rank {0} nranks 4 cudaDev {0} nvmlDev {0} busId {0}000 commId {1} - "
PATH = "NCCL INFO Channel 00/0 : {0}[{0}] -> {1}[{1}] via P2P/CUMEM"


def job(comm: str = "0x7", pid: int = 100) -> bytes:
    texts = [INIT.format(rank, comm) + phase for phase in ("Init START", "Init COMPLETE") for rank in range(4)]
    texts += [PATH.format(rank, (rank + 1) % 4) for rank in range(4)]
    return "".join(f"g:{pid + n % 4}:{pid + n % 4} [{n % 4}] {text}\n" for n, text in enumerate(texts)).encode()


def as_json(launched: dict[int, int], missing: dict[int, bool] | None = None) -> str:
    def rank(number: int, **more: Any) -> dict[str, Any]:
        return {"rank": number, "host": "192.0.2.7", "pid": 100 + number, **more}

    here = [rank(number, collective_counts={"AllReduce": count}) for number, count in launched.items()]
    gone = [rank(n, status={"unresponsive": True, "considered_dead": dead}) for n, dead in (missing or {}).items()]
    comm = {"hash": "0x7", "size": 4, "ranks": here, "missing_ranks": gone}
    return json.dumps({"nccl_version": "2.30.3", "communicators_count": 1, "communicators": [comm]})


TEXT = """NCCL version 2.27.5 compiled with CUDA 12.9

Job summary
===========

#0-0 (0000000000000007) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 12
  Rank 2 has launched up to operation 9 -- GPU 2 managed by process 102 on node 192.0.2.7
"""


def answer(server: socket.socket, answers: list[str], replies: dict[str, str]) -> None:
    """Answer as src/ras/client_support.cc does: a command by a line, a status by all until the connection closes."""
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            with suppress(OSError), connection, connection.makefile("rw") as stream:
                for line in stream:
                    if line == "VERBOSE STATUS\n":
                        stream.write(answers.pop(0) if len(answers) > 1 else answers[0])
                        break
                    stream.write(replies.get(line.strip(), "ERROR: Unknown command\n"))
                    stream.flush()


@contextmanager
def serving(answers: list[str]) -> Iterator[str]:
    replies = {"CLIENT PROTOCOL 2": "SERVER PROTOCOL 2\n"}
    replies |= {} if answers[0] == TEXT else {"SET FORMAT json": "OK\n"}
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, args=(server, answers, replies), daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def watch_job(*answers: str, log: bytes = b"") -> Watched:
    """Return a watch of a job that is up, with what RAS answers every 10 s."""
    watching = Watched()
    watching.watch.feed(log or job())
    watching.news_after(10)
    with serving(list(answers)) as where:
        asker = Asker(where, 1)
        for _ in answers:
            assert not list(watching.watch.take(asker.ask()))
            assert not [one for one in watching.news_after(10) if isinstance(one, Stall)], "too early"
    return watching


EVEN, AHEAD, LATE = (dict.fromkeys(range(4), count) for count in (12, 13, 14))
LATE[2] = 9
REST = {0: 9, 1: 9, 2: 9}
CASES = {
    "rank 2: 9 AllReduce, others 14, in communicator 0x7": (as_json(EVEN), as_json(AHEAD), *[as_json(LATE)] * 2),
    "rank 2: 9 AllReduce, others 12, in communicator 0x7": (TEXT, TEXT),
    "rank 3: does not answer": [as_json(REST, {3: False})] * 2,
    "rank 3: considered dead": [as_json(REST, {3: True})] * 2,
    "": [as_json(EVEN)] * 2,
    " of one answer": [as_json(LATE)],
    " while operations are launched": [as_json(LATE), as_json(LATE | {2: 10})],
}


def test_who_lags_is_named_while_the_job_runs() -> None:
    wrong: list[object] = []
    for words, answers in CASES.items():
        watching = watch_job(*answers)
        news = watching.news_after(61)
        found = [(one.ranks, [text for _, text in one.rows]) for one in news if isinstance(one, Stall)]
        is_told = words.startswith("rank")
        wrong += [(words, found)] if found != ([([int(words[5])], [words])] if is_told else []) else []
        wrong += [(words, "alarm")] if bool(find_alarm(news, ["stall"])) != is_told else []
        wrong += [(words, "finding")] if any(isinstance(one, Change) for one in news) != is_told else []
        assert not [one for one in watching.news_after(10) if isinstance(one, Stall)], f"{words}: told twice"
    assert not wrong


def test_progress_takes_back_what_was_said() -> None:
    watching = watch_job(as_json(LATE), as_json(LATE))
    assert any(isinstance(one, Stall) for one in watching.news_after(61))
    with serving([as_json({2: 9}, {0: True, 1: True, 3: True}), as_json(EVEN)]) as where:
        gone, moved = (Asker(where, 1).ask() for _ in range(2))
    assert not list(watching.watch.take(gone)), "that processes are gone is no progress"
    assert watching.watch.ras == "RAS: rank 2 behind"
    assert [type(one) for one in watching.watch.take(moved)] == [Resumed]
    news = watching.news_after(10)
    assert {(one.how, one.finding.rule) for one in news if isinstance(one, Change)} == {("gone", "ranks-out-of-step")}
    assert [one.job.verdict for one in news if isinstance(one, Turn)] == ["ok"]
    list(watching.watch.take("Connection refused"))
    assert watching.watch.ras == "no answer from RAS (Connection refused)"
    other = watch_job(as_json(LATE), as_json(LATE), log=job("0x8", 300))
    assert not [one for one in other.news_after(61) if isinstance(one, Stall)], "RAS of another job accuses nobody"
    with pytest.raises(Exception, match="needs HOST:PORT"):
        invoke("watch", "--ras", "localhost")


@pytest.mark.slow
def test_the_command_asks_beside_the_log() -> None:
    with serving([as_json(LATE)]) as where:
        options = ["--ras", where, "--interval", "0.04", "--settle", "0.1", "--stall", "0.3", "--exit-on", "stall"]
        with Piped([*EXE, "watch", *options], bufsize=0) as process:
            process.stdin.write(job())
            shown = read_until(process.stdout, b"in communicator 0x7\n")
            assert b"STALLED: by RAS no operation was launched for " in shown
            assert process.wait(PATIENCE) == 1
