"""The engine that runs the rules: which ones, in which order, and the verdicts that come of them."""

import fnmatch
from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import pairwise

import pytest
from rule_pages import RULES
from short_logs import G6E_TOPOLOGY, P2P_OFF, SHM, SOCKET, completion, found, line, names, read

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.judging import engine
from nccl_inspect.judging.relations import Relations, relations

P2P = line(0, "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")
COMPLETE = line(0, "comm 0x1 rank 0 nranks 2 cudaDev 0 busId 60 - Init COMPLETE")
CONNECTED = line(0, "Connected all rings, use ring PXN 0 GDR 1")


def test_a_specific_rule_silences_the_generic_one() -> None:
    assert names(read(SOCKET)) == ["socket-instead-of-rdma"]
    assert names(read(SOCKET, platform="p5.48xlarge")) == ["socket-instead-of-efa"]
    assert names(read(SOCKET, platform="p5.48xlarge", ignore=["socket-instead-of-efa"])) == ["socket-instead-of-rdma"]


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (["p2p-disabled-by-env"], {"p2p-disabled-by-env"}),
        (["shm-*"], {"shm-instead-of-p2p"}),
        (["intra-node path"], {"p2p-disabled-by-env", "shm-instead-of-p2p"}),
        (["Intra-Node Path"], {"p2p-disabled-by-env", "shm-instead-of-p2p"}),
        (["network"], set()),
    ],
)
def test_rules_are_selected_and_ignored_by_name_glob_and_category(select: list[str], expected: set[str]) -> None:
    assert set(names(read(P2P_OFF + SHM, select=select))) == expected
    assert set(names(read(P2P_OFF + SHM, ignore=select))) == {"p2p-disabled-by-env", "shm-instead-of-p2p"} - expected


def test_ignore_takes_away_from_select() -> None:
    left = {entry.rule.name for entry in engine.selected(["socket-*"], ["*-ib"])}
    assert left == {"socket-instead-of-efa", "socket-instead-of-rdma"}


@pytest.mark.parametrize("option", ["select", "ignore"])
def test_an_unknown_rule_is_an_error(option: str) -> None:
    with pytest.raises(NcclInspectError, match="no rule 'no-such-rule'"):
        read(SHM, **{option: ["no-such-rule"]})


def test_rules_are_ordered_by_category_and_name() -> None:
    order = [(engine.CATEGORIES.index(rule.category), rule.name) for rule in RULES.values()]
    assert all(before < after for before, after in pairwise(order))


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_names_others_that_exist(rule: engine.Rule) -> None:
    assert set(rule.explains) <= set(RULES)
    assert rule.severity in engine.SEVERITIES


def test_every_effect_that_a_rule_names_exists() -> None:
    effects = {name for rule in RULES.values() for name in (*rule.causes, *rule.echoes, *rule.supersedes)}
    assert [name for name in effects if not fnmatch.filter(RULES, name)] == []


def test_no_rule_is_an_echo_of_its_own_echoes() -> None:
    TopologicalSorter({name: relations().leading(name) for name in RULES}).prepare()  # a cycle raises


def test_a_new_cause_names_its_effects_by_a_glob_and_edits_none_of_them() -> None:
    new = replace(RULES["plugin-not-found"], name="new-failure", causes=(), echoes=("watchdog-*",))
    known = Relations([*RULES.values(), new])
    assert "new-failure" in known.leading("watchdog-stuck") and "new-failure" in known.leading("watchdog-timeout")
    assert "new-failure" not in relations().leading("watchdog-stuck")


def test_verdicts() -> None:
    assert read(P2P).verdict == "unknown"  # an excerpt: it does not show that a communicator came up
    begun = line(0, "cudaDriverVersion 13000") + COMPLETE
    both = "".join(
        line(rank, "cudaDriverVersion 13000")
        + line(rank, f"comm 0x{rank} rank {rank} nranks 2 cudaDev {rank} busId {rank} commId 0x2 - Init COMPLETE")
        for rank in (0, 1)
    )
    assert read(both + P2P + CONNECTED).verdict == "ok"
    assert read(begun + P2P + CONNECTED).verdict == "unknown"  # rank 1 has no line
    assert read(COMPLETE + P2P + CONNECTED).verdict == "unknown"  # the end of a log
    assert read(begun + P2P).verdict == "unknown"  # the log ends while ranks connect
    assert read(SHM).verdict == "unknown"
    assert read(P2P_OFF + SHM).verdict == "degraded"
    assert read(line(0, "NCCL version 2.27.3+cuda12.9")).verdict == "unknown"
    start = line(0, "ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x2 - Init START")
    assert read(start).verdict == "unknown"
    assert read(start + "launcher: timeout, killing 2 ranks\n").verdict == "failed"


def test_path_verdicts() -> None:
    job = read(P2P_OFF + SHM + P2P.replace("0[0] -> 1[1]", "1[1] -> 2[2]"))
    assert job.paths.between(0, 1).verdict == "fallback"
    assert job.paths.between(0, 1).rules == ["p2p-disabled-by-env", "shm-instead-of-p2p"]
    assert job.paths.between(1, 2).verdict == "ok"
    assert not job.paths.between(1, 2).rules
    assert read(SHM).paths.between(0, 1).verdict == "unknown"
    assert read(SHM, topology=G6E_TOPOLOGY).paths.between(0, 1).verdict == "ok"


def test_a_status_without_a_rule_stays_visible() -> None:
    alone = read(completion(6))
    assert [notice.message for notice in alone.unexplained] == [alone.notices[0].message]


def test_what_a_rule_explains_is_not_called_unexplained_when_the_rule_is_left_out() -> None:
    job = read(completion(12), ignore=["ib-timeout-err12"])
    assert names(job) == ["debug-level-too-low"]
    assert not job.unexplained
    assert job.verdict == "unknown"


def test_an_exception_that_only_announces_what_a_finding_quotes_is_not_unexplained() -> None:
    job = read(
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, unhandled cuda error "
        "(run with NCCL_DEBUG=INFO for details), NCCL version 2.19.3\n"
        "ncclUnhandledCudaError: Call to CUDA function failed.\n"
        "Last error:\nFailed to CUDA calloc async 24 bytes\n"
    )
    assert found(job, "gpu-out-of-memory").confidence == "possible"
    assert not job.unexplained
