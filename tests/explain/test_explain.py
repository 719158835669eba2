"""``explain``: rules, and single lines with what they mean and whether to worry."""

from __future__ import annotations

import json
import re

import pytest
from command_line import invoke
from terminals import run

from nccl_inspect.errors import NcclInspectError


def test_what_a_prefix_lacks_is_not_told_of_its_line() -> None:
    refused = "Connect to 10.0.0.1<4000> failed : Connection refused"
    assert b"\nfrom" not in run("explain", f"misc/socket.cc:71 NCCL WARN {refused}").stdout
    named = run("explain", f"[3] misc/socket.cc:71 NCCL WARN {refused}")
    assert b"\nfrom        device 3 (of the thread)\n" in named.stdout


@pytest.mark.parametrize(
    "message",
    [
        "comm 0x... rank 1 nranks 4 cudaDev 1 busId XXXX - Destroy COMPLETE",
        "ncclCommInitRankConfig comm 0x… rank 1 nranks 4 cudaDev 0 nvmlDev 0 busId XXXX commId 0xXX - Init START",
        "NVLS Created Multicast group 0x... nranks 4 size 2097152 on rank 1",
    ],
)
def test_a_line_with_numbers_left_out_is_explained_without_them(message: str) -> None:
    """As in the chapter on logging of NCCL's manual."""
    done = run("explain", message)
    assert done.returncode == 0, done.stderr
    fields = dict(line.split()[:2] for line in done.stdout.decode().partition("fields\n")[2].splitlines())
    assert (fields["rank"], fields["nranks"]) == ("1", "4")
    assert not {"comm", "bus_id", "comm_id", "handle"} & set(fields)


CONNECTION = "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
WATCHDOG = (
    "[rank3]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=5173, OpType=_ALLGATHER_BASE, NumelIn=65667072, NumelOut=525336576, Timeout(ms)=600000) "
    "ran for 600052 milliseconds before timing out."
)
NCCL_ERROR = (
    "torch.distributed.DistBackendError: NCCL error in: /opt/pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:77, "
    "unhandled cuda error, NCCL version 2.19.3"
)
ABORT = "vm:1:1 [0] NCCL INFO comm 0x55d0 rank 0 nranks 8 cudaDev 0 busId 60 - {} COMPLETE"


@pytest.mark.parametrize(
    ("line", "worry"),
    [
        (WATCHDOG, "yes: it waited until it timed out"),
        (ABORT.format("Abort"), "it depends: yes after an error"),
        (ABORT.format("Destroy"), "no, not on its own"),
        (NCCL_ERROR, "yes: something failed here"),
        (CONNECTION, "no, not on its own"),
    ],
)
def test_whether_to_worry(line: str, worry: str) -> None:
    assert f"worry       {worry}" in invoke("explain", line).stdout


def test_fields_of_pytorch_are_described_as_such_and_internal_ones_are_not_shown() -> None:
    output = " ".join(invoke("explain", NCCL_ERROR).stdout.split())
    assert "NCCLUtils.hpp source file of PyTorch at 77 line in that file" in output
    assert "error unhandled cuda error what NCCL returned, in words version 2.19.3 release of NCCL" in output
    for line in (WATCHDOG, NCCL_ERROR):
        assert not re.search(r"^ +_", invoke("explain", line).stdout, re.MULTILINE)


@pytest.mark.parametrize(
    "line",
    [
        f"\x1b[32m{CONNECTION}\x1b[0m",
        CONNECTION.replace("NCCL", "\x1b[1mNCCL\x1b[0m"),
        f"2026-11-20T23:13:07.000000000Z stderr F {CONNECTION}",
        json.dumps({"log": f"{CONNECTION}\n", "stream": "stderr", "time": "2026-11-20T23:13:07Z"}),
    ],
)
def test_a_line_is_read_as_in_a_log_whatever_is_around_it(line: str) -> None:
    assert invoke("explain", line).stdout == invoke("explain", CONNECTION).stdout
    assert "\n    ^ Direct GPU memory" in invoke("annotate", data=f"{line}\n".encode()).stdout


def test_what_stands_around_a_line_is_not_taken_for_a_part_of_it() -> None:
    line = json.dumps({"log": f"{NCCL_ERROR}\n", "stream": "stderr", "time": "2026-11-20T23:13:07Z"})
    assert invoke("explain", line).stdout == invoke("explain", NCCL_ERROR).stdout


MANY = b"".join(b"line %d\n" % number for number in range(101))
NO_DEVICE = "NET/IB : No device found."
OVER_SOCKET = "Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0"


@pytest.mark.parametrize("args", [[], ["-"]])
def test_a_line_to_explain_may_be_piped_in(args: list[str]) -> None:
    piped = run("explain", *args, data=f"{CONNECTION}\n".encode())
    assert piped.stdout == run("explain", CONNECTION).stdout
    for data, says in ((b"", b"is empty; name a rule"), (MANY, b"more than 100 lines; use 'nccl-inspect annotate")):
        refused = run("explain", *args, data=data)
        assert (refused.returncode, refused.stderr.count(b"\n")) == (2, 1)
        assert says in refused.stderr


@pytest.mark.parametrize(
    ("args", "data"),
    [
        ([NO_DEVICE, OVER_SOCKET], b""),
        ([f"{NO_DEVICE}\n{OVER_SOCKET}\n"], b""),
        ([], f"{NO_DEVICE}\n\n{OVER_SOCKET}\n{NO_DEVICE}\n".encode()),
    ],
)
def test_several_lines_are_explained_one_by_one(args: list[str], data: bytes) -> None:
    each = [invoke("explain", line).stdout for line in (NO_DEVICE, OVER_SOCKET)]
    assert invoke("explain", *args, data=data).stdout == f"> {NO_DEVICE}\n{each[0]}\n> {OVER_SOCKET}\n{each[1]}"


def test_of_several_lines_those_that_nobody_knows_are_named() -> None:
    output = invoke("explain", NO_DEVICE, "the training is slow").stdout
    assert "\n> the training is slow\nunknown     no such rule, and not a" in output
    assert invoke("explain", "gdr-disabled", "nic-shared").stdout.count("\n> nic-shared\n") == 1


@pytest.mark.parametrize(
    ("part", "known"),
    [
        ("NCCL WARN Cuda failure 999", "nccl/cuda-failure,"),
        ("vm:1:1 [0] include/alloc.h:3 NCCL WARN Cuda failure 999", "nccl/cuda-failure,"),
        ("NET/IB : No devices", "nccl/net-ib-none,"),
        ("Watchdog caught collec", "torch/watchdog-timeout"),
        ("Bootstrap : no socket interface", "nccl/bootstrap-no-interface,"),
        ("Duplicate GPU detected", "nccl/duplicate-gpu"),
        ("with error 12, opcode 0, len 32617", "nccl/ib-completion"),
        ("my training is slow since Monday", ""),
        ("NET/OFI is slow on my cluster", ""),
        ("out of the blue", ""),
    ],
)
def test_half_a_line_is_explained_by_the_nearest_one(part: str, known: str) -> None:
    if not known:
        with pytest.raises(NcclInspectError, match="not a recognized log line"):
            invoke("explain", part)
        return
    output = invoke("explain", part).stdout
    assert output.startswith("nearest     ")
    assert "closest known line" in " ".join(output.split())
    assert f"known as    {known}" in output


@pytest.mark.parametrize(
    ("line", "worry"),
    [
        ("vm:1:1 [0] x.cc:1 NCCL WARN NET/IB : No device found.", "it depends"),
        ("vm:1:1 [0] x.cc:1 NCCL WARN Cuda failure 999 'unknown error'", "yes"),
        ("vm:1:1 [0] NCCL INFO x.cc:1 -> 2", "yes"),
    ],
)
def test_what_is_normal_is_no_reason_to_worry(line: str, worry: str) -> None:
    assert f"worry       {worry}" in invoke("explain", line).stdout


def test_a_line_alone_is_not_the_end_of_a_log() -> None:
    assert "hang-in-init" not in invoke("explain", NO_DEVICE).stdout


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("network", "'network' is a rule category; choose one of its rules: "),
        ("Log Quality", "'Log Quality' is a rule category; choose one of its rules: "),
        (
            "NCCL_P2P_DISABLE=1",
            "NCCL_P2P_DISABLE is a setting, not a rule or a log line; rules that mention it: p2p-",
        ),
        ("NCCL_NO_SUCH", "no rule mentions it; see NCCL's documentation"),
    ],
)
def test_what_is_neither_a_rule_nor_a_line_is_told_as_what_it_is(what: str, says: str) -> None:
    with pytest.raises(NcclInspectError) as caught:
        invoke("explain", what)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("KeyboardInterrupt", "python-interrupted"),
        ("trainer.TrainingFailed: loss is nan", "python-raised"),
        ("queue.Empty", "python-raised"),
        ("[rank1]: trainer.errors.TrainingFailed: loss is nan", "rank-raised"),
        ("2026-11-20T23:13:07.000000000Z stderr F trainer.TrainingFailed: loss is nan", "python-raised"),
        ("Traceback (most recent call last):", "python-traceback"),
        ("^CTraceback (most recent call last):", "python-traceback"),
    ],
)
def test_a_line_of_a_traceback_is_explained_alone(line: str, known: str) -> None:
    assert f"torch/{known}," in invoke("explain", line).stdout


@pytest.mark.parametrize("line", ["Epoch: 3", "Warning: something", "Loss", "numpy.float", "train.py: 7"])
def test_what_may_be_any_print_is_not_explained_as_an_exception(line: str) -> None:
    with pytest.raises(NcclInspectError):
        invoke("explain", line)


def test_capitals_do_not_matter_in_the_name_of_a_rule() -> None:
    assert invoke("explain", "GDR-Disabled").stdout == invoke("explain", "gdr-disabled").stdout
