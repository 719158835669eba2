"""The command ``traffic``: calls merge, their number is bounded, and what is printed fits.

Where the bytes of each call go, and by which algorithm, is in `tests/answers/commands.txt` (`traffic/traffic`).
"""

from __future__ import annotations

from itertools import pairwise

import sample_data
from hypothesis import given
from hypothesis import strategies as st

import nccl_inspect
from nccl_inspect.model import resolve
from nccl_inspect.model.fold import Fold
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style
from nccl_inspect.traffic import FORMATS, count_traffic


def log(*calls: str) -> bytes:
    """Return four ranks of one host, each making the same calls, after the formats of 2.27."""
    lines = []
    for rank in range(4):
        head = f"vm:{10 + rank}:{10 + rank} [{rank}] NCCL INFO "
        init = f"comm 0xa rank {rank} nranks 4 cudaDev {rank} nvmlDev {rank} busId {rank + 1}000 commId 0x2"
        lines += [f"{head}ncclCommInitRank {init} - Init {phase}" for phase in ("START", "COMPLETE")]
        lines += [head + call for call in calls]
    return "\n".join(lines).encode() + b"\n"


def call(func: str, count: int, root: int = 0, number: int = 0) -> str:
    return (
        f"{func}: opCount {number:x} sendbuff 0x1 recvbuff 0x2 count {count} datatype 7 op 0 root {root} "
        "comm 0xa [nranks=4] stream 0x3"
    )


def resolve_log(folds: list[Fold]) -> Job:
    for later in folds[1:]:
        folds[0].merge(later)
    return resolve.resolve(folds[0])


@given(places=st.lists(st.integers(0, 100_000), max_size=4))
def test_calls_merge(places: list[int]) -> None:
    lines = log(*(call("AllReduce", 2**n, number=n) for n in range(12)), call("Send", 8)).splitlines()
    ends = sorted({0, len(lines), *(place % len(lines) for place in places)})
    whole = resolve_log([sample_data.fold_sources([("log", lines)])])
    parts = resolve_log([sample_data.fold_sources([("log", lines[a:b])]) for a, b in pairwise(ends)])
    assert parts.calls == whole.calls
    assert whole.calls


def test_a_rank_whose_log_was_cut_short_takes_no_calls_from_the_others() -> None:
    lines = log(*(call("AllReduce", 1 << 20, number=n) for n in range(5))).splitlines()
    for cut in range(4):
        kept = [line for n, line in enumerate(lines) if n // 7 != cut or n % 7 < 4]  # two of its five calls
        (calls,) = nccl_inspect.read(b"\n".join(kept)).calls
        assert (calls.calls, calls.elements, calls.ranks) == (5, 5 << 20, [0, 1, 2, 3]), cut


def test_calls_of_many_sizes_are_kept_by_powers_of_two() -> None:
    many = log(*(call("Send", 1 + n % 1000, root=n % 4, number=n) for n in range(1500)))
    state = sample_data.fold_sources([("log", many.splitlines())])
    assert all(len(process.calls) <= 40 for process in state.processes.values())


def test_narrow_terminals_get_paragraphs() -> None:
    found = count_traffic(sample_data.job("v2.30.7-subsys-all"), [])
    text = FORMATS["text"](found, "operation", Style(width=40))
    assert max(map(len, text.splitlines())) <= 40
