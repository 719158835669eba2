"""``explain``: rules, and single lines with what they mean and whether to worry."""

from __future__ import annotations

import json
import re

import pytest
from command_line import invoke
from terminals import run

from nccl_inspect.errors import NcclInspectError

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
ENDED = "vm:1:1 [0] NCCL INFO comm 0x55d0 rank 0 nranks 8 cudaDev 0 busId 60 - {} COMPLETE"
NO_DEVICE = "NET/IB : No device found."
OVER_SOCKET = "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"
REFUSED = "misc/socket.cc:71 NCCL WARN Connect to 10.0.0.1<4000> failed : Connection refused"
SAYS = [
    # a line, or a part of it, and what is said of it
    (f"[3] {REFUSED}", "\nfrom        device 3 (of the thread)\n"),
    (WATCHDOG, "worry       yes: it waited until it timed out"),
    (ENDED.format("Abort"), "worry       it depends: yes after an error"),
    (ENDED.format("Destroy"), "worry       no, not on its own"),
    (NCCL_ERROR, "worry       yes: something failed here"),
    (CONNECTION, "worry       no, not on its own"),
    ("vm:1:1 [0] x.cc:1 NCCL WARN NET/IB : No device found.", "worry       it depends"),
    ("vm:1:1 [0] x.cc:1 NCCL WARN Cuda failure 999 'unknown error'", "worry       yes"),
    ("vm:1:1 [0] NCCL INFO x.cc:1 -> 2", "worry       yes"),
    # half a line is explained by the nearest one
    ("NCCL WARN Cuda failure 999", "known as    nccl/cuda-failure,"),
    ("vm:1:1 [0] include/alloc.h:3 NCCL WARN Cuda failure 999", "known as    nccl/cuda-failure,"),
    ("NET/IB : No devices", "known as    nccl/net-ib-none,"),
    ("Watchdog caught collec", "known as    torch/watchdog-timeout"),
    ("Bootstrap : no socket interface", "known as    nccl/bootstrap-no-interface,"),
    ("Duplicate GPU detected", "known as    nccl/duplicate-gpu"),
    ("with error 12, opcode 0, len 32617", "known as    nccl/ib-completion"),
    # a line of a traceback is explained alone
    ("KeyboardInterrupt", "torch/python-interrupted,"),
    ("trainer.TrainingFailed: loss is nan", "torch/python-raised,"),
    ("queue.Empty", "torch/python-raised,"),
    ("[rank1]: trainer.errors.TrainingFailed: loss is nan", "torch/rank-raised,"),
    ("2026-11-20T23:13:07.000000000Z stderr F trainer.TrainingFailed: loss is nan", "torch/python-raised,"),
    ("Traceback (most recent call last):", "torch/python-traceback,"),
    ("^CTraceback (most recent call last):", "torch/python-traceback,"),
]
IS_NONE = {
    "my training is slow since Monday": "not a recognized log line",
    "NET/OFI is slow on my cluster": "not a recognized log line",
    "out of the blue": "not a recognized log line",
    **dict.fromkeys(("Epoch: 3", "Warning: something", "Loss", "numpy.float", "train.py: 7"), ""),  # any print
    "network": "'network' is a rule category; choose one of its rules: ",
    "Log Quality": "'Log Quality' is a rule category; choose one of its rules: ",
    "NCCL_P2P_DISABLE=1": "NCCL_P2P_DISABLE is a setting, not a rule or a log line; rules that mention it: p2p-",
    "NCCL_NO_SUCH": "no rule mentions it; see NCCL's documentation",
}


def explained(*args: str, data: bytes | None = None) -> str:
    return invoke("explain", *args, data=data).stdout


def test_a_line_is_explained() -> None:
    wrong = [f"{line}: without {says!r}" for line, says in SAYS if says not in explained(line)]
    assert not wrong, "\n".join(wrong)
    assert explained("NET/IB : No devices").startswith("nearest     ")
    assert "closest known line" in " ".join(explained("NET/IB : No devices").split())
    assert "\nfrom" not in explained(REFUSED), "what a prefix lacks is not told of its line"
    assert "hang-in-init" not in explained(NO_DEVICE), "a line alone is not the end of a log"


def test_what_is_neither_a_rule_nor_a_line_is_told_as_what_it_is() -> None:
    for what, says in IS_NONE.items():
        with pytest.raises(NcclInspectError) as caught:
            explained(what)
        assert says in str(caught.value), what


def test_a_line_with_numbers_left_out_is_explained_without_them() -> None:
    """As in the chapter on logging of NCCL's manual."""
    for message in (
        "comm 0x... rank 1 nranks 4 cudaDev 1 busId XXXX - Destroy COMPLETE",
        "ncclCommInitRankConfig comm 0x… rank 1 nranks 4 cudaDev 0 nvmlDev 0 busId XXXX commId 0xXX - Init START",
        "NVLS Created Multicast group 0x... nranks 4 size 2097152 on rank 1",
    ):
        fields = dict(line.split()[:2] for line in explained(message).partition("fields\n")[2].splitlines())
        assert (fields["rank"], fields["nranks"]) == ("1", "4"), message
        assert not {"comm", "bus_id", "comm_id", "handle"} & set(fields), message


def test_fields_of_pytorch_are_described_as_such_and_internal_ones_are_not_shown() -> None:
    output = " ".join(explained(NCCL_ERROR).split())
    assert "NCCLUtils.hpp source file of PyTorch at 77 line in that file" in output
    assert "error unhandled cuda error what NCCL returned, in words version 2.19.3 release of NCCL" in output
    for line in (WATCHDOG, NCCL_ERROR):
        assert not re.search(r"^ +_", explained(line), re.MULTILINE)


def test_a_line_is_read_as_in_a_log_whatever_is_around_it() -> None:
    for line in (
        f"\x1b[32m{CONNECTION}\x1b[0m",
        CONNECTION.replace("NCCL", "\x1b[1mNCCL\x1b[0m"),
        f"2026-11-20T23:13:07.000000000Z stderr F {CONNECTION}",
        json.dumps({"log": f"{CONNECTION}\n", "stream": "stderr", "time": "2026-11-20T23:13:07Z"}),
    ):
        assert explained(line) == explained(CONNECTION), line
        assert "\n    ^ Direct GPU memory" in invoke("annotate", data=f"{line}\n".encode()).stdout, line
    wrapped = json.dumps({"log": f"{NCCL_ERROR}\n", "stream": "stderr", "time": "2026-11-20T23:13:07Z"})
    assert explained(wrapped) == explained(NCCL_ERROR)
    assert explained("GDR-Disabled") == explained("gdr-disabled"), "capitals do not matter in the name of a rule"


def test_several_lines_are_explained_one_by_one() -> None:
    both = f"> {NO_DEVICE}\n{explained(NO_DEVICE)}\n> {OVER_SOCKET}\n{explained(OVER_SOCKET)}"
    assert explained(NO_DEVICE, OVER_SOCKET, data=b"") == both
    assert explained(f"{NO_DEVICE}\n{OVER_SOCKET}\n", data=b"") == both
    assert explained(data=f"{NO_DEVICE}\n\n{OVER_SOCKET}\n{NO_DEVICE}\n".encode()) == both
    output = explained(NO_DEVICE, "the training is slow")
    assert "\n> the training is slow\nunknown     no such rule, and not a" in output
    assert explained("gdr-disabled", "nic-shared").count("\n> nic-shared\n") == 1


@pytest.mark.slow
def test_a_line_to_explain_may_be_piped_in() -> None:
    many = b"".join(b"line %d\n" % number for number in range(101))
    for args in ([], ["-"]):
        piped = run("explain", *args, data=f"{CONNECTION}\n".encode())
        assert piped.stdout.decode() == explained(CONNECTION)
        for data, says in ((b"", b"is empty; name a rule"), (many, b"more than 100 lines; use 'nccl-inspect annotate")):
            refused = run("explain", *args, data=data)
            assert (refused.returncode, refused.stderr.count(b"\n")) == (2, 1)
            assert says in refused.stderr
