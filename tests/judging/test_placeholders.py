"""Placeholders of fixes are filled with what the log states, and with nothing else."""

from __future__ import annotations

import re

import pytest
import sample_data
from rule_pages import findings

import nccl_inspect
from nccl_inspect.event.base import Process
from nccl_inspect.judging import placeholders
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.places import Places, culprit_ranks, pod_of
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job

_LOG = "".join(
    f"{front}{host}:{100 + rank}:{100 + rank} [{rank}] NCCL INFO ncclCommInitRank comm 0x{rank + 1}000 rank {rank} "
    f"nranks 4 cudaDev {rank} nvmlDev {rank} busId {rank}0 commId 0x77 - Init START\n"
    for front, host, rank in (
        ("[pod/llama-0-abc/main] ", "n1", 0),
        ("[pod/llama-0-abc/main] ", "n1", 1),
        ("[pod/llama-1-xyz/main] ", "n2", 2),
        ("[pod/llama-1-xyz/main] ", "n2", 3),
    )
)


def filled(step: str, log: str = _LOG, **about: object) -> str:
    job = nccl_inspect.read(log.encode())
    known = {"rule": "r", "category": "c", "severity": "error", "confidence": "likely"}
    finding = Finding(**{**known, "summary": "s", "cause": "c", "impact": "i", "fix": [step], **about})  # type: ignore[arg-type]
    placeholders.fill(Facts(job), [finding])
    return finding.fix[0]


def test_the_process_of_one_rank_is_named() -> None:
    assert filled("py-spy dump --pid <pid>   # on rank 3", ranks=[3]) == "py-spy dump --pid 103   # rank 3, on n2"
    assert filled("py-spy dump --pid <pid>   # where?", ranks=[3]).endswith("--pid 103   # rank 3, on n2; where?")


def test_what_is_not_one_stays_and_is_listed() -> None:
    step = filled("py-spy dump --pid <pid>   # on every rank: where?", ranks=[3])
    assert step == "py-spy dump --pid <pid>   # on every rank: where?; <pid>: 100, 101 on n1; 102, 103 on n2"
    assert filled("py-spy dump --pid <pid>") == "py-spy dump --pid <pid>"


def test_processes_of_two_pods_with_one_number_are_not_the_same() -> None:
    log = _LOG.replace(":102:102", ":100:100")
    step = filled("py-spy dump --pid <pid>", log, ranks=[0, 2])
    assert step == "py-spy dump --pid <pid>   # <pid>: 100 on n1; 100 on n2"


def test_a_pod_is_the_one_that_the_collector_names() -> None:
    assert filled("kubectl logs --previous <pod>", ranks=[2, 3]) == "kubectl logs --previous llama-1-xyz"
    assert filled("kubectl logs <pod>", hosts=["n1"]) == "kubectl logs llama-0-abc"
    assert filled("kubectl logs <pod>", ranks=[0, 2]) == ("kubectl logs <pod>   # <pod>: llama-0-abc, llama-1-xyz")
    assert filled("kubectl cordon <node>", ranks=[3]) == "kubectl cordon <node>"


def test_without_a_collector_the_host_stands_for_the_pod_and_says_so() -> None:
    bare = re.sub(r"^\[.*?\] ", "", _LOG, flags=re.MULTILINE)
    assert filled("kubectl logs <pod>", bare, ranks=[3]) == "kubectl logs <pod>"
    pods = bare.replace("n2:", "llama-node-0-1:")
    assert filled("kubectl logs <pod>", pods, ranks=[3]) == "kubectl logs llama-node-0-1   # pod named after the host"
    nodes = bare.replace("n2:", "ip-10-0-0-2:")
    assert filled("kubectl logs <pod>", nodes, ranks=[3]) == "kubectl logs <pod>"
    assert filled("kubectl cordon <node>", nodes, ranks=[3]) == "kubectl cordon ip-10-0-0-2"


def test_a_rank_that_printed_nothing_has_no_place() -> None:
    assert filled("kubectl logs <pod>", ranks=[9], hosts=["n1"]) == "kubectl logs <pod>"


@pytest.mark.parametrize(
    ("label", "pod"),
    [
        ("pod/llama-node-0-0/trainer", "llama-node-0-0"),
        ("llama-node-0-0 trainer", "llama-node-0-0"),
        ("ml llama-node-0-0 trainer", "llama-node-0-0"),
        ("llama-node-0-0 › trainer", "llama-node-0-0"),
        ("llama-0/trainer", "llama-0"),
        ("job.log", None),
        ("", None),
    ],
)
def test_labels_name_pods(label: str, pod: str | None) -> None:
    assert pod_of(Process("ip-10-0-0-1", 7, label)) == pod


def test_the_interface_is_the_one_of_the_others() -> None:
    log = (
        "".join(f"h{rank}:{rank}:{rank} [0] NCCL INFO Bootstrap: Using eth0:10.0.0.{rank}<0>\n" for rank in (1, 2))
        + "h3:3:3 [0] misc/socket.cc:400 NCCL WARN Bootstrap : no socket interface found\n"
    )
    (finding,) = nccl_inspect.read(log.encode()).findings
    assert any(step.startswith("NCCL_SOCKET_IFNAME='=eth0' ") for step in finding.fix)


def _open_questions(finding: Finding, job: Job) -> list[str]:
    """Steps that leave out what the log states of the one rank that they are about."""
    places = Places(job)
    known = [places.of(rank) for rank in culprit_ranks(finding)]
    if len(known) != 1:
        return []
    stated = {"<pid>": known[0].pid, "<pod>": known[0].pod}
    return [
        step
        for step in finding.fix
        for name, value in stated.items()
        if value is not None and name in step and not re.search(r"\b(?:every|each|all)\b", step)
    ]


@pytest.mark.parametrize("name", sample_data.names())
def test_no_fix_asks_for_what_the_log_states(name: str) -> None:
    job = sample_data.job(name)
    assert not [step for finding in job.findings for step in _open_questions(finding, job)]


def test_a_placeholder_is_known_or_the_users_own() -> None:
    own = {"script", "command", "file", "library", "path", "folder", "type", "resource", "row", "index", "suffix"}
    own |= {"address", "port", "netdev", "bdf", "name", "id", "sg", "branch", "version", "number", "nodes", "bytes"}
    own |= {"network", "longer"}
    left = {name for finding in findings() for step in finding.fix for name in re.findall(r"<([a-z]+)>", step)}
    assert left - own <= placeholders.NAMES
