"""The exception of a traceback is the line below its frames, whatever the class is called."""

from __future__ import annotations

import json

import pytest
import sample_data
from test_exceptions import ENDED, START, WORK, failed, raised

import nccl_inspect
from nccl_inspect.pipeline.reader import Reader

FRAMES = """\
Traceback (most recent call last):
  File "/train.py", line 31, in <module>
    main()
    ^^^^^^
  File "/train.py", line 3, in main
    raise Failed
"""
NAMES = [
    "MyPkg.TrainingFailed: loss is nan",
    "TrainingFailed: loss is nan",
    "SystemExit: 3",
    "StopIteration",
    "queue.Empty",
    "zmq.error.Again: Resource temporarily unavailable",
    "subprocess.TimeoutExpired: Command 'nvidia-smi' timed out after 5 seconds",
    "socket.timeout: timed out",
]


def traceback(last: str, front: str = "") -> str:
    """A traceback with something in front of each line."""
    return "".join(f"{front}{line}\n" for line in f"{FRAMES}{last}".splitlines())


def cause(*texts: str) -> str:
    """What is said of the rank that ended."""
    lead = nccl_inspect.read((START + WORK + "".join(texts)).encode()).findings[0]
    return f"{lead.rule} {lead.ranks}: {lead.summary}; {lead.cause}"


@pytest.mark.parametrize("front", ["[rank1]: ", "[pod/a/b] [rank1]: ", "2026-11-20T23:13:07.071868123Z [rank1]: "])
@pytest.mark.parametrize("last", NAMES)
def test_a_rank_ended_with_it(last: str, front: str) -> None:
    assert f"peer-death [1]: rank 1 (vm, pid 611) ended with {last};" in cause(traceback(last, front), failed(1))


@pytest.mark.parametrize("front", ["", "[pod/a/b] ", "2026-11-20T23:13:07.071868123Z stdout F "])
@pytest.mark.parametrize("last", NAMES)
def test_it_may_be_the_cause_where_nothing_tells_whose_it_is(last: str, front: str) -> None:
    assert f"likely {last} (" in cause(traceback(last, front), failed(1))


@pytest.mark.parametrize("last", NAMES)
def test_it_is_found_in_objects(last: str) -> None:
    lines = (START + WORK + traceback(last) + failed(1)).splitlines()
    log = "".join(json.dumps({"log": f"{line}\n", "stream": "stderr"}) + "\n" for line in lines)
    assert f"likely {last} (" in nccl_inspect.read(log.encode()).findings[0].cause


def test_the_tracebacks_of_labelled_ranks_may_be_mixed() -> None:
    every = [traceback(f"pkg.Failed: rank {rank}", f"[rank{rank}]: ").splitlines(True) for rank in range(200)]
    mixed = "".join(line for row in zip(*every, strict=True) for line in row)
    job = nccl_inspect.read((START + WORK + mixed).encode())
    assert job.findings[0].summary == "rank 0 (vm, pid 610) ended with pkg.Failed: rank 0, and 199 more"


@pytest.mark.parametrize("last", ["loss: 0.3", "step 3 loss 1.5", "SystemExit: 0", "done"])
def test_what_has_no_form_of_an_exception_is_none(last: str) -> None:
    assert last not in cause(traceback(last), failed(1))


def test_without_a_traceback_such_a_line_is_anything() -> None:
    assert "Epoch" not in cause("Epoch: 3\n", failed(1))
    assert "Epoch" not in cause(traceback("ValueError: bad"), "Epoch: 3\n", failed(1))


@pytest.mark.parametrize("line", ["Loss: 2.31", "Epoch: 3 Loss: 2.31", "Training: finished in 3 s", "train.py: done"])
def test_lines_that_others_print_in_between_are_none(line: str) -> None:
    mixed = f"{FRAMES.replace('    main()', f'{line}{chr(10)}    main()')}{line}\n"
    assert "unknown from this log; likely: an exception" in cause(mixed, failed(1))
    assert "likely queue.Empty (" in cause(f"{mixed}queue.Empty\n", failed(1))
    assert "likely ValueError: bad (" in cause(traceback("ValueError: bad"), mixed, failed(1))


def test_a_traceback_whose_end_is_lost_is_not_waited_for_without_end() -> None:
    text = f"{FRAMES}{'  Loss: 2.31{0}done{0}'.format(chr(10)) * 3000}queue.Empty\n"
    assert "unknown from this log; likely: an exception" in cause(text, failed(1))
    assert "unknown from this log; likely: an exception" in cause(
        traceback("SystemExit: 0"), "queue.Empty\n", failed(1)
    )


def test_what_a_program_caught_later_is_not_the_cause() -> None:
    told = cause(traceback("ValueError: bad"), traceback("queue.Empty"), failed(1))
    assert "likely ValueError: bad (" in told
    assert told.endswith("; other exceptions appear near it")


def test_read_in_blocks_and_merged_where_that_is_allowed_it_is_the_same() -> None:
    lines = (START + WORK + traceback("pkg.Failed: x") + failed(1)).encode().splitlines()
    whole = sample_data.folded([("log", lines)]).sources[0].raised
    assert [one.text for one in whole] == [b"pkg.Failed: x"]
    for at in range(len(lines)):
        reader, first = Reader(), sample_data.folded([("log", lines[:at])])
        reader.fold.start("log")
        reader.feed(lines[:at])
        reader.feed(lines[at:])
        assert reader.fold.sources[0].raised == whole
        later = sample_data.folded([("log", lines[at:])])
        if first.can_merge(later):
            first.merge(later)
            assert first.sources[0].raised == whole


def test_a_ctrl_c_in_the_driver_of_ray_is_told() -> None:
    job = nccl_inspect.read((START + WORK + traceback("KeyboardInterrupt")).encode())
    assert (job.verdict, [one.rule for one in job.findings]) == ("ok", ["ended-from-outside"])
    assert job.findings[0].summary == "the job was ended: SIGINT from outside"
    assert job.findings[0].confidence == "possible"


INTERRUPTED = traceback("KeyboardInterrupt")


@pytest.mark.parametrize(
    "log",
    [
        INTERRUPTED + START + WORK,
        traceback("KeyboardInterrupt", "(Monitor pid=33) ") + START + WORK + ENDED,
        START.replace("\n", f"\n{INTERRUPTED}", 40) + WORK + ENDED,
        START + INTERRUPTED + WORK,
        START + WORK + ENDED + INTERRUPTED,
    ],
)
def test_a_ctrl_c_after_which_the_job_goes_on_is_that_of_a_helper(log: str) -> None:
    job = nccl_inspect.read(log.encode())
    assert (job.verdict, job.findings, job.unexplained) == ("ok", [], [])


def test_a_ctrl_c_before_a_rank_is_killed_tells_nothing() -> None:
    job = nccl_inspect.read((START + INTERRUPTED + WORK + failed(1, -9)).encode())
    assert [one.rule for one in job.findings] == ["peer-death"]


def test_a_ctrl_c_of_many_processes_is_told() -> None:
    job = nccl_inspect.read((START + WORK + INTERRUPTED * 50).encode())
    assert [(one.rule, one.confidence) for one in job.findings] == [("ended-from-outside", "possible")]


def test_a_ctrl_c_after_the_end_of_a_rank_is_not_the_cause() -> None:
    job = nccl_inspect.read((START + WORK + raised(1, "KeyError: 'a'") + traceback("KeyboardInterrupt")).encode())
    assert (job.verdict, job.findings[0].rule, job.findings[0].ranks) == ("failed", "peer-death", [1])
