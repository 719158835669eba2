"""A setting of some ranks only that an error names: it is the cause, and leads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sample_data

import nccl_inspect
from nccl_inspect.judging.agreement import AGREEMENTS
from nccl_inspect.judging.engine import registered
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job
from nccl_inspect.report import Style, text

OFF = "NCCL_P2P_DISABLE set by environment to 1"
ERRORS = (
    "vm:12:12 [2] misc/ipcsocket.cc:251 NCCL WARN UDS: Sending data over socket /tmp/nccl-socket-3-7fa1 failed : "
    "Connection refused (111)\n",
    "vm:13:113 [3] proxy.cc:1500 NCCL WARN Cuda failure 1 'invalid argument'\n",
    "vm:13:13 [3] NCCL INFO transport.cc:33 -> 1\n",
)
"""After the format strings of 2.28."""


def log(
    has: Callable[[int], bool],
    *,
    setting: str = OFF,
    errors: tuple[str, ...] = ERRORS,
    release: str = "2.28.9",
    host: Callable[[int], str] = lambda _: "vm",
) -> str:
    """Four ranks, some of which have a setting."""

    def of(rank: int) -> str:
        return f"{host(rank)}:{10 + rank}:{10 + rank} [{rank}] NCCL INFO "

    init = "ncclCommInitRank comm 0x5{0} rank {0} nranks 4 cudaDev {0} nvmlDev {0} busId {1}0 commId 0x77 - Init "
    lines = [
        f"{of(0)}NCCL version {release}+cuda12.4",
        *(f"{of(rank)}Bootstrap: Using eth0:192.0.2.1<0>" for rank in range(4)),
    ]
    lines += [f"{of(rank)}{init.format(rank, rank + 1)}START" for rank in range(4)]
    lines += [f"{of(rank)}{setting}" for rank in range(4) if has(rank)]
    lines += [f"{of(rank)}{init.format(rank, rank + 1)}COMPLETE" for rank in range(4)]
    lines += [
        f"{of(rank)}Channel 00/0 : {rank}[{rank}] -> {(rank + 1) % 4}[{(rank + 1) % 4}] via "
        + ("SHM/direct/direct" if has(rank) else "P2P/CUMEM")
        for rank in range(4)
    ]
    return "\n".join(lines) + "\n" + "".join(errors)


def read(text: str) -> Job:
    return nccl_inspect.read(text.encode())


def first(text: str) -> Finding:
    return read(text).findings[0]


def test_the_setting_of_one_rank_leads_before_the_failure_that_follows() -> None:
    job = read(log(lambda rank: rank == 3))
    leading = job.findings[0]
    assert (leading.rule, leading.summary) == ("env-mismatch-across-ranks", "NCCL_P2P_DISABLE=1 on rank 3 only")
    assert (leading.ranks, leading.fatal) == ([3], True)
    assert leading.fix[0] == "unset NCCL_P2P_DISABLE   # on rank 3; or set it on all ranks"
    effect = next(one for one in job.findings if one.rule == "cuda-failure-in-connect")
    assert effect.because[0] == "env-mismatch-across-ranks" and not effect.root
    assert job.verdict == "failed"
    assert not job.unexplained


def test_the_rank_without_it_is_the_odd_one() -> None:
    leading = first(log(lambda rank: rank != 2))
    assert leading.summary == "NCCL_P2P_DISABLE=1 on ranks 0-1,3, not on rank 2"
    assert leading.ranks == [2]


def test_until_2_22_the_level_may_be_the_switch() -> None:
    text = log(lambda rank: rank == 3, setting="NCCL_P2P_LEVEL set by environment to LOC", release="2.19.4")
    leading = first(text)
    assert leading.summary == "NCCL_P2P_DISABLE=1 or NCCL_P2P_LEVEL=LOC on rank 3 only"
    assert leading.fix[0].startswith("unset NCCL_P2P_DISABLE NCCL_P2P_LEVEL ")


@pytest.mark.parametrize("error", ["Cuda failure 719 'unspecified launch failure'", "Cuda failure 2 'out of memory'"])
def test_another_failure_keeps_its_own_cause(error: str) -> None:
    errors = (f"vm:13:13 [3] proxy.cc:1500 NCCL WARN {error}\n",)
    job = read(log(lambda rank: rank == 3, errors=errors))
    assert job.findings[0].rule != "env-mismatch-across-ranks"
    assert job.findings[0].root


def test_a_setting_of_all_ranks_explains_nothing() -> None:
    assert "env-mismatch-across-ranks" not in [one.rule for one in read(log(lambda _: True)).findings]


def test_hosts_may_differ() -> None:
    text = log(lambda rank: rank > 1, host=lambda rank: f"node-{rank // 2}", errors=())
    assert "env-mismatch-across-ranks" not in [one.rule for one in read(text).findings]


def test_where_ranks_connected_nothing_is_said() -> None:
    done = tuple(f"vm:{10 + rank}:{10 + rank} [{rank}] NCCL INFO Connected all rings\n" for rank in range(4))
    job = read(log(lambda rank: rank == 3, errors=done))
    assert "env-mismatch-across-ranks" not in [one.rule for one in job.findings]


def test_the_table_names_rules() -> None:
    names = {one.rule.name for one in registered()}
    told = {rule for one in AGREEMENTS if one.effect for rule in one.effect.rules}
    assert told <= names
    assert len({one.name for one in AGREEMENTS}) == len(AGREEMENTS)


@pytest.mark.parametrize(
    "name", [name for name in sample_data.names() if sample_data.truth(name)["outcome"] == "completed"]
)
def test_healthy_jobs_agree(name: str) -> None:
    fatal = [one.rule for one in sample_data.job(name).findings if one.fatal]
    assert "env-mismatch-across-ranks" not in fatal


CRASH = (
    "E1123 10:55:01.337 7 torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: -11) local_rank: 2 "
    "(pid: 12) of binary: /usr/bin/python3\n"
)
LINK = "vm:{0}:{0} [{1}] NCCL INFO Channel 01/0 : {1}[{1}] -> {2}[{2}] via {3}\n"


def test_a_crash_of_a_rank_that_shares_memory_the_other_way_follows_from_the_setting() -> None:
    back = LINK.format(12, 2, 3, "P2P/CUMEM") + LINK.format(13, 3, 2, "SHM/direct/direct")
    job = read(log(lambda rank: rank == 3, errors=(back, CRASH)))
    leading = job.findings[0]
    assert (leading.rule, leading.ranks, leading.fatal) == ("env-mismatch-across-ranks", [3], True)
    death = next(finding for finding in job.findings if finding.rule == "peer-death")
    assert (death.ranks, death.because, death.root) == ([2], ["env-mismatch-across-ranks"], False)
    shown = text.render(job, Style(width=120))
    assert "\nERROR env-mismatch-across-ranks (likely, rank 3" in shown
    assert "  effect    peer-death (certain): rank 2" in shown


def test_a_crash_elsewhere_does_not_follow_from_it() -> None:
    away = LINK.format(11, 1, 0, "P2P/CUMEM") + LINK.format(10, 0, 1, "P2P/CUMEM")
    job = read(log(lambda rank: rank == 3, errors=(away, CRASH.replace("pid: 12", "pid: 10"))))
    assert job.findings[0].rule == "peer-death"
