"""Lines of short pasted logs that were broken: put together where the grammar knows the whole, and only there."""

import pytest

import nccl_inspect

HARD = """\
e1e7e8b6d6a1:301:355 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /
dev/shm/nccl-bVjkDp to 9637892 bytes
"""
WORDS = """\
e1e7e8b6d6a1:301:355 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend
/dev/shm/nccl-bVjkDp to 9637892 bytes
"""
AFTER = "e1e7e8b6d6a1:301:355 [0] NCCL INFO transport/shm.cc:114 -> 2\n"
INIT = "e1e7e8b6d6a1:301:355 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 60 - Init COMPLETE\n"
MESSAGE = "Error: failed to extend /dev/shm/nccl-bVjkDp to 9637892 bytes"


def quote_lines(text: str) -> str:
    return "".join(f"> {line}\n" for line in text.splitlines())


@pytest.mark.parametrize("text", [HARD, WORDS, quote_lines(HARD), quote_lines(WORDS)])
def test_a_broken_line_is_one_again(text: str) -> None:
    job = nccl_inspect.read((text + (quote_lines(AFTER) if text.startswith(">") else AFTER)).encode())
    assert not job.unrecognised
    assert next(notice.message for notice in job.notices) == MESSAGE
    assert [notice.evidence[0].line for notice in job.notices] == [1, 3]
    assert job.sources[0].lines == 3


@pytest.mark.parametrize(
    "text",
    [
        HARD.replace("dev/shm/nccl-bVjkDp to 9637892 bytes", "and so it went on"),
        HARD.replace("dev/shm", AFTER.rstrip("\n")),
        HARD + "x" * 200 + "\n" + INIT,
    ],
    ids=["no message", "another line", "no such width"],
)
def test_what_is_no_message_or_had_room_is_left_alone(text: str) -> None:
    job = nccl_inspect.read((text + AFTER).encode())
    assert MESSAGE not in [notice.message for notice in job.notices]


def test_a_message_that_is_whole_takes_nothing_up() -> None:
    whole = "node-1:1:1 [0] NCCL INFO cudaDriverVersion 12020\n5 is a number of the program\n"
    job = nccl_inspect.read(whole.encode())
    assert job.cuda_versions == ["12.2"]
