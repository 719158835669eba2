"""Ranks and names in few words, and back; secrets in none."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import invoke
from hypothesis import given
from hypothesis import strategies as st

import nccl_inspect
from nccl_inspect import report
from nccl_inspect.util.secrets import find_secrets, mask_secrets
from nccl_inspect.util.wording import (
    _runs,
    expand,
    fold_names,
    range_word,
    ranges,
    read_range,
    some_names,
    some_ranks,
)

RANKS: dict[str, list[int]] = {
    "": [],
    "3": [3],
    "0-3,7": [0, 1, 2, 3, 7],
    "0,8,16,24": [0, 8, 16, 24],
    "0-1016:8": [*range(0, 1017, 8)],
    "0-7,64-71": [*range(8), *range(64, 72)],
    "0-56:8,72-120:8": sorted({*range(0, 121, 8)} - {64}),
    "0-1016:8,1": sorted({*range(0, 1017, 8)} | {1}),
    "0-1016:8,1-1017:8": [rank for rank in range(1024) if rank % 8 < 2],
    "0,1-1017:8,16-1016:8": [rank for rank in range(1024) if rank % 8 < 2 and rank != 8],
    "0-56:8,100-109": [*range(0, 64, 8), *range(100, 110)],
}
NAMES: dict[str, list[str]] = {
    "mlx5_[0-7]": [f"mlx5_{at}" for at in range(8)],
    "gpu-node-[0000-0127]": [f"gpu-node-{at:04}" for at in range(128)],
    "ip-10-0-1-[12-19]": [f"ip-10-0-1-{at}" for at in range(12, 20)],
    "rack[1-2]-node[01-16]": [f"rack{rack}-node{at:02}" for rack in (1, 2) for at in range(1, 17)],
    "rack3-node[01-16] rack4-node01": [f"rack3-node{at:02}" for at in range(1, 17)] + ["rack4-node01"],
    "n[8-11]": [f"n{at}" for at in range(8, 12)],
    "n[08-10] n8": ["n08", "n09", "n10", "n8"],
    "login n[1-2]": ["login", "n1", "n2"],
    "rdmap[16,79,110]s0": [f"rdmap{at}s0" for at in (16, 79, 110)],
    "a[1 a[2": ["a[1", "a[2"],
    "n1": ["n1", "n1"],
    "n[0-18:2].example.com": [f"n{at}.example.com" for at in range(0, 20, 2)],
}
STRIDES = st.builds(
    lambda start, steps, step: set(range(start, start + steps * step, step)),
    st.integers(0, 2000),
    st.integers(1, 60),
    st.integers(1, 70),
)
SETS = st.one_of(
    st.sets(st.integers(0, 300)),
    st.lists(STRIDES, max_size=4).map(lambda parts: set().union(*parts)),
    st.tuples(STRIDES, st.sets(st.integers(0, 2000), max_size=8)).map(lambda both: both[0] - both[1]),
)


def numbers_of(text: str) -> set[int]:
    parts = {word: read_range(word) for word in text.split(",") if word}
    assert None not in parts.values(), parts
    return {number for part in parts.values() for number in part or ()}


def test_ranks_and_names_are_short() -> None:
    assert {ranges(ranks): ranks for ranks in RANKS.values()} == RANKS
    assert {" ".join(fold_names(names)): names for names in NAMES.values()} == NAMES
    assert not [word for word in ("", "a", "7-3", "0-8:0", "-3", "0-7/2", "0-7:", "1:2") if read_range(word)]
    words, _, more = some_ranks([number * number for number in range(40)]).partition(",… ")
    assert len(numbers_of(words)) + int(more.removesuffix(" more")) == 40
    assert some_names(["n1", "n2", "n3"]) == "n1, n2, n3"
    assert some_names([f"n{at}" for at in range(9)]) == "n[0-8]"
    assert some_names(["a1", "a2", "b", "c", "d3", "d4"]) == "a[1-2], b, c, d[3-4]"
    assert some_names(["a1", "a2", "b", "c", "d3", "d4", "e"]) == "a[1-2], b, c, … 3 more"
    assert some_names(["a[1]", "b", "c", "d[0-9]", "e"]) == "a[1], b, c, … 2 more"
    assert all(expand(name) == [name] for name in ("n[]", "n[3-1]", "n[a]", "n[1-", "n", "n[0-999999999]"))


@given(SETS)
def test_ranks_are_read_back(ranks: set[int]) -> None:
    assert numbers_of(ranges(ranks)) == ranks
    assert sum(len(read_range(word) or ()) for word in ranges(ranks).split(",")) == len(ranks)
    assert len(ranges(ranks)) <= len(",".join(map(range_word, _runs(sorted(ranks)))))


@given(st.lists(st.from_regex(r"[a-c]?(-?[0-9]{1,4}[a-b]?){0,3}", fullmatch=True), unique=True))
def test_folded_names_are_read_back(names: list[str]) -> None:
    assert sorted(name for word in fold_names(names) for name in expand(word)) == sorted(names)


# --- secrets

HIDDEN, HARMLESS = (
    part.splitlines() for part in Path(__file__).with_name("secrets.txt").read_text("utf-8").split("\n\n")
)
"""Texts, each with what is shown of it below; and texts without a secret."""
LOG = b"""vm:1:1 [0] NCCL INFO HF_TOKEN set by environment to s3cret
vm:1:1 [0] NCCL INFO NCCL_NET_PASSWORD set by environment to s3cret
vm:1:1 [0] NCCL INFO NET/OFI Adding WANDB_API_KEY=s3cret to environment
vm:1:1 [0] NCCL INFO NCCL_CONF_FILE set by environment to http://joe:s3cret@host/x
vm:2:2 [1] NCCL INFO HF_TOKEN set by environment to s3cret-too
vm:2:2 [1] NCCL INFO a line with password=s3cret that no release prints
vm:2:2 [1] misc/socket.cc:41 NCCL WARN token: s3cret is not what the peer expects
vm:2:2 [1]  NCCL INFO HF_TOKEN set by environment to s3cret
vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
"""


def test_a_secret_is_hidden_and_other_text_stays() -> None:
    for text, shown in zip(HIDDEN[::2], HIDDEN[1::2], strict=True):
        assert (mask_secrets(text), mask_secrets(shown)) == (shown, shown), text
        assert find_secrets(text), text
    assert {text: (mask_secrets(text), bool(find_secrets(text))) for text in HARMLESS} == {
        one: (one, False) for one in HARMLESS
    }


@pytest.mark.slow
def test_a_long_line_is_masked_in_linear_time() -> None:
    """With a pattern whose time is quadratic in the line, these would take many minutes."""
    words = "token¦secret-¦--token-¦token='¦://a:¦bearer ¦api_key=¦password to ¦login -p¦sig=¦name: token\n¦value: x "
    for piece in f"{words}¦name=token value¦curl -u ¦basic a¦mysql ¦token: |\n ¦cookie=".split("¦"):
        assert mask_secrets(piece * (300_000 // len(piece)))
    assert mask_secrets(("://" + "a" * 50) * 5000)


def test_no_output_tells_a_secret(tmp_path: Path) -> None:
    log = str(tmp_path / "job.log")
    Path(log).write_bytes(LOG)
    commands = [("summarize", "--format", form, *more, log) for form in report.names() for more in ((), ("-v",))]
    commands += [("annotate", log), ("annotate", "--only-nccl", log), ("check", "--learn", "--force", log)]
    for command in [*commands, ("diff", log, log)]:
        done = invoke(*command)
        assert done.stdout, command
        assert "s3cret" not in done.stdout + done.stderr, command


def test_the_job_and_the_events_have_no_secret_and_tell_different_ones_apart() -> None:
    job, events = nccl_inspect.read(LOG), list(nccl_inspect.events(LOG))
    assert "s3cret" not in repr(job) + repr(events)
    assert len(events) > 4
    settings = {setting.name: setting.value for setting in job.environment}
    assert settings["HF_TOKEN"] == settings["NCCL_NET_PASSWORD"] == settings["WANDB_API_KEY"] == "***"
    assert len([setting for setting in job.environment if setting.name == "HF_TOKEN"]) == 2
