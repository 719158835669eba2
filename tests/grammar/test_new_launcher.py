"""A launcher, or a wording, that nobody knew is one block in a grammar file and no other edit: rules judge it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from signal import Signals

import pytest

import nccl_inspect
from nccl_inspect.event.types import ProcessEnded
from nccl_inspect.grammar import engine, files
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline.reader import Reader

OWN = [Path(__file__).with_name(name) for name in ("starter.grammar", "wordings.grammar")]
"""A launcher that nobody knew, and wordings of a release of tomorrow."""
START = "".join(
    f"vm:{100 + rank}:{100 + rank} [{rank}] NCCL INFO ncclCommInitRank comm 0x{rank + 1} rank {rank} nranks 4 "
    f"cudaDev {rank} nvmlDev {rank} busId {rank + 1}0 commId 0x2 - Init COMPLETE\n"
    for rank in range(4)
)
NAMED = "starter: rank 2 on vm, process 102, is gone: "


@pytest.fixture(autouse=True)
def grammar(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Yield the shipped grammar, and other files beside it."""
    shipped = list(files.list_files())
    monkeypatch.setattr(files, "list_files", lambda: iter([*shipped, *OWN]))
    engine.load_grammar.cache_clear()
    yield
    monkeypatch.undo()
    engine.load_grammar.cache_clear()


def read(*lines: str) -> Job:
    return nccl_inspect.read((START + "\n".join(lines) + "\n").encode())


HOW = {
    "status 3": "ended with exit code 3",
    "status 139": "was ended by SIGSEGV",
    "signal 9": "was ended by SIGKILL",
    "signal SIGABRT": "was ended by SIGABRT",
    "signal Bus error": "was ended by SIGBUS",
}


def test_the_process_is_judged_with_rank_host_and_code() -> None:
    whole = START.replace("COMPLETE", "START") + START  # in a cut log, words before an abort may be missing
    for end, how in HOW.items():
        (finding,) = nccl_inspect.read(f"{whole}{NAMED}{end}\n".encode()).findings
        assert (finding.rule, finding.severity, finding.confidence) == ("peer-death", "error", "certain")
        assert finding.summary.startswith(f"rank 2 (vm, pid 102) {how}; the others were ended")
        assert (finding.ranks, finding.hosts, finding.evidence[0].text) == ([2], ["vm"], NAMED + end)


def test_the_first_process_is_named_though_others_lost_it() -> None:
    lost = "vm:{0}:{0} [{1}] misc/socket.cc:499 NCCL WARN socketProgress: Connection closed by remote peer vm<1>"
    job = read(NAMED + "signal 11", lost.format(100, 0), lost.format(101, 1), "starter: lost 0 (Aborted)")
    assert (job.findings[0].rule, job.findings[0].ranks) == ("peer-death", [2])
    assert not job.unexplained


def test_a_signal_from_outside_is_no_failure_and_a_launcher_may_name_no_pid_or_no_process_at_all() -> None:
    assert read(NAMED + "signal 15").findings[0].rule == "ended-from-outside"
    assert read("starter: lost 1 (Killed)").findings[0].ranks == [1]
    assert "a process that starter does not name ended with exit code 7" in (
        read("starter: a process failed, status 7").findings[0].summary
    )


REPORT = ("starter: rank {rank} failed:", "starter:   process {pid} of {node}", "starter:   its end: {end}")


def report(rank: int, pid: int, end: str, node: str = "vm") -> list[str]:
    return [line.format(rank=rank, pid=pid, node=node, end=end) for line in REPORT]


def test_a_report_of_several_lines_is_one_event() -> None:
    for end, how in HOW.items():
        job = read(*report(2, 102, end))
        finding = job.findings[0]
        assert finding.summary.startswith(f"rank 2 (vm, pid 102) {how}"), end
        assert (finding.ranks, finding.evidence[0].text) == ([2], REPORT[1].format(pid=102, node="vm"))
        assert not job.unexplained
    assert read(*report(2, 7, "signal 15")).findings[0].rule == "ended-from-outside"


def test_reports_that_stand_near_each_other_are_not_mixed() -> None:
    parts = [*report(2, 7, "status 3"), "", *report(1, 8, "signal 9"), "other", *report(3, 7, "status 3", "vm-2")]
    found = nccl_inspect.events((START + "\n".join(parts) + "\n").encode())
    whole = [one for one in found if isinstance(one, ProcessEnded) and not one.completes]
    assert [(one.ranks, one.node, one.ended_pid, one.code) for one in whole] == [
        ((2,), "vm", 7, 3),
        ((1,), "vm", 8, -9),
        ((3,), "vm-2", 7, 3),
    ]
    # In the same words, on hosts whose containers count alike, they are one statement about both ranks.
    alike = read(*report(2, 7, "status 3"), *report(1, 7, "status 3"))
    assert alike.findings[0].ranks == [1, 2]


def test_a_report_is_whole_wherever_the_log_is_cut_while_it_is_read() -> None:
    lines = (START + "\n".join([*report(2, 7, "signal 11"), "the end"])).encode().split(b"\n")
    whole = read(*report(2, 7, "signal 11"), "the end").findings[0]
    for cut in range(4, len(lines)):
        reader, later = Reader(), Reader()
        for part, one in ((lines[:cut], reader), (lines[cut:], later)):
            one.fold.start("<bytes>")
            one.feed(part)
        assert reader.fold.can_merge(later.fold) == (cut == len(START.splitlines())), cut
        reader.feed(lines[cut:])
        events = (note.event for log in reader.fold.processes.values() for note in log.notes.values())
        (ended,) = (one for one in events if isinstance(one, ProcessEnded) and not one.completes)
        assert (ended.ranks, ended.code) == (tuple(whole.ranks), -11) == ((2,), -11), cut


WORDS = {
    "order": {"first", "own", "any"},
    "process": {"rank", "any", "loader", "task", "spawned", "command", "training", "unknown"},
    "completes": {"above", "below"},
}


def test_the_constants_of_a_report_are_words_that_rules_know() -> None:
    wrong = []
    for one in engine.load_grammar().productions:
        if one.event != ProcessEnded.__name__:
            continue
        stated = {name: one.constants[name] for name in WORDS if name in one.constants}
        signals = [*map(one.constants.get, ("signal", "kills_with")), *one.constants.get("external", "").split("|")]
        unknown = [f"{name}={word}" for name, word in stated.items() if word not in WORDS[name]]
        unknown += [signal for signal in signals if signal and signal not in Signals.__members__]
        if unknown or not one.constants["reporter"]:
            wrong.append(f"{one.dialect}/{one.family}.grammar: {one.name}: {unknown or 'no reporter'}")
    assert not wrong, "\n".join(wrong)


def test_what_the_process_is_stands_in_the_event() -> None:
    (event,) = (
        one for one in nccl_inspect.events((START + NAMED + "signal SIGKILL\n").encode()) if one.level == "OTHER"
    )
    assert isinstance(event, ProcessEnded)
    assert (event.ranks, event.node, event.ended_pid, event.code) == ((2,), "vm", 102, -9)
    assert (event.reporter, event.order, event.signal) == ("starter", "first", "SIGKILL")


def test_a_new_line_of_a_known_kind_is_one_block_of_grammar() -> None:
    for line, rule, words in (
        (
            "ownConnect to 10.0.0.2<40000> gave up: Connection refused",
            "bootstrap-connect-refused",
            "nothing listens at that address",
        ),
        ("the communicator 0x7f00 is past its end", "invalid-usage", "destroyed, corrupted or not ready"),
    ):
        finding = nccl_inspect.read(f"a:1:1 [0] NCCL WARN {line}\n".encode()).findings[0]
        assert finding.rule == rule
        assert words in finding.cause
