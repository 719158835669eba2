"""The steps of findings: few, the likeliest first, and none for a cloud that the log does not show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from repository import TESTS
from rule_pages import RULES, findings

import nccl_inspect
from nccl_inspect.judging import clouds

MOST = 4
CASES = sorted((TESTS / "cases").glob("*.log"))
CLOUD = re.compile(r"EKS|\bEFA\b|GKE|Azure|\bOCI\b|amazonaws|aws ec2|gke\.io")
OF_ONE_CLOUD = {name for name, rule in RULES.items() if rule.cloud}
PLACEHOLDERS = {
    *("<pod>", "<node>", "<nodes>", "<host>", "<hosts>", "<pid>", "<interface>", "<netdev>", "<port>", "<address>"),
    *(
        "<network>",
        "<longer>",
        "<script>",
        "<command>",
        "<file>",
        "<folder>",
        "<path>",
        "<library>",
        "<version>",
        "<suffix>",
        "<branch>",
    ),
    *("<resource>", "<GPUs of the node>", "<NICs of the node>", "<NICs of the job>", "<GPUs>", "<number>", "<bytes>"),
    *("<row>", "<index>", "<bdf>", "<device>", "<name>", "<id>", "<sg>", "<job>", "<another port>"),
    *("<existing options>",),
    *("<address of the first>", "<address of the NIC>", "<address of the peer's NIC>", "<host of --rdzv-endpoint>"),
}
"""What a user, or a report that knows it, fills in."""
SOCKET = (
    "node-{host}:1{host}:1{host} [0] NCCL INFO NET/IB : No device found.\n"
    "node-{host}:1{host}:1{host} [0] NCCL INFO Channel 00/0 : {host}[0] -> {other}[0] [send] via NET/Socket/0\n"
)


def over_tcp(*head: str, host: str = "node-") -> str:
    text = "".join(SOCKET.format(host=host, other=1 - host) for host in (0, 1))
    return "".join(f"node-0:10:10 [0] NCCL INFO {line}\n" for line in head).replace("node-", host) + text.replace(
        "node-", host
    )


def steps(text: str, platform: str | None = None) -> list[str]:
    return nccl_inspect.read(text.encode(), platform=platform).findings[0].fix


def test_findings_have_few_steps() -> None:
    assert {finding.rule: len(finding.fix) for finding in findings() if not 0 < len(finding.fix) <= MOST} == {}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_cases_have_few_steps(path: Path) -> None:
    for finding in nccl_inspect.read(str(path)).findings:
        assert 0 < len(finding.fix) <= MOST


def test_steps_of_a_cloud_need_signs_of_it() -> None:
    found = steps(over_tcp())
    assert found
    assert not [step for step in found if CLOUD.search(step)]
    assert not [step for step in found if "--platform" in step]


@pytest.mark.parametrize(
    "text", [over_tcp("NET/OFI Initializing aws-ofi-nccl 1.13.2-aws"), over_tcp(host="ip-10-0-0-")]
)
def test_steps_of_aws_where_the_log_shows_it(text: str) -> None:
    assert "AWS" in [name for name in clouds._WORDS if any(clouds._WORDS[name].search(step) for step in steps(text))]


def test_steps_of_aws_where_the_user_says_so() -> None:
    assert any("vpc.amazonaws.com/efa" in step for step in steps(over_tcp(), platform="p5.48xlarge"))


def test_rules_about_one_cloud_say_so() -> None:
    assert {name for name in RULES if name.startswith(("efa-", "tcpx")) or name.endswith("-efa")} == OF_ONE_CLOUD


def test_placeholders_are_spelled_alike() -> None:
    named = {word for finding in findings() for step in finding.fix for word in re.findall(r"<[A-Za-z][^<>]*>", step)}
    assert named <= PLACEHOLDERS


def test_interfaces_and_cards_can_be_pasted() -> None:
    told = {step for finding in findings() for step in finding.fix}
    assert not [step for step in told if re.search(r"NCCL_(SOCKET_IFNAME|IB_HCA)==", step)]
