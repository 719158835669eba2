"""``explain``: a line is read whatever is around it, alone, among others and from a pipe.

What is said of rules, lines, halves of lines and what is neither is in `tests/answers/commands.txt`.
"""

from __future__ import annotations

import json

import pytest
from command_line import invoke
from terminals import run

CONNECTION = "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
NCCL_ERROR = (
    "torch.distributed.DistBackendError: NCCL error in: /opt/pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:77, "
    "unhandled cuda error, NCCL version 2.19.3"
)
NO_DEVICE = "NET/IB : No device found."
OVER_SOCKET = "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"


def explain_text(*args: str, data: bytes | None = None) -> str:
    return invoke("explain", *args, data=data).stdout


def test_a_line_is_read_as_in_a_log_whatever_is_around_it() -> None:
    for line in (
        f"\x1b[32m{CONNECTION}\x1b[0m",
        CONNECTION.replace("NCCL", "\x1b[1mNCCL\x1b[0m"),
        f"2026-11-20T23:13:07.000000000Z stderr F {CONNECTION}",
        json.dumps({"log": f"{CONNECTION}\n", "stream": "stderr", "time": "2026-11-20T23:13:07Z"}),
    ):
        assert explain_text(line) == explain_text(CONNECTION), line
        assert "\n    ^ Direct GPU memory" in invoke("annotate", data=f"{line}\n".encode()).stdout, line
    wrapped = json.dumps({"log": f"{NCCL_ERROR}\n", "stream": "stderr", "time": "2026-11-20T23:13:07Z"})
    assert explain_text(wrapped) == explain_text(NCCL_ERROR)
    assert explain_text("GDR-Disabled") == explain_text("gdr-disabled"), "capitals do not matter in the name of a rule"


def test_several_lines_are_explained_one_by_one() -> None:
    both = f"> {NO_DEVICE}\n{explain_text(NO_DEVICE)}\n> {OVER_SOCKET}\n{explain_text(OVER_SOCKET)}"
    assert explain_text(NO_DEVICE, OVER_SOCKET, data=b"") == both
    assert explain_text(f"{NO_DEVICE}\n{OVER_SOCKET}\n", data=b"") == both
    assert explain_text(data=f"{NO_DEVICE}\n\n{OVER_SOCKET}\n{NO_DEVICE}\n".encode()) == both


@pytest.mark.slow
def test_a_line_to_explain_may_be_piped_in() -> None:
    many = b"".join(b"line %d\n" % number for number in range(101))
    for args in ([], ["-"]):
        piped = run("explain", *args, data=f"{CONNECTION}\n".encode())
        assert piped.stdout.decode() == explain_text(CONNECTION)
        for data, says in ((b"", b"is empty; name a rule"), (many, b"more than 100 lines; use 'nccl-inspect annotate")):
            refused = run("explain", *args, data=data)
            assert (refused.returncode, refused.stderr.count(b"\n")) == (2, 1)
            assert says in refused.stderr
