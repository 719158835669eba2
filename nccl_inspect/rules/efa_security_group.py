"""EFA packets never reached the peer: usually the security group drops them."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, Finding, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.networks.efa_completions import (
    UNREACHABLE,
    code_of,
    completions,
    is_connected,
    never_connected,
    unreachable_peers,
)

RULE = Rule(
    name="efa-security-group",
    category="plugins",
    cloud="AWS",
    title="EFA packets never reached the peer: most often the security group drops them",
    supersedes=("efa-completion-error", "transfer-failed"),
)

_FIX = [
    "aws ec2 authorize-security-group-ingress --group-id <sg> --ip-permissions "
    "'IpProtocol=-1,UserIdGroupPairs=[{GroupId=<sg>}]'   # and authorize-security-group-egress likewise",
    "Put all instances into that group, one VPC and one Availability Zone; P4d, P4de and DL1 cannot communicate over "
    "EFA with other types.",
    "fi_pingpong -p efa   # on one node; on another: fi_pingpong -p efa <address of the first>",
    "See AWS's guide: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start-nccl.html#nccl-start-base-setup.",
]


def judge(facts: Facts) -> Results:
    """Judge the first transfers: failures after connections were made mean that the peer is gone."""
    failed = unreachable_peers(facts) or _unexplained_failures(facts)
    if not failed:
        yield from _rejected_addresses(facts)
        return
    banner = [
        notice
        for notice in facts.notices("aws-ofi-nccl/ofi-security-group-banner")
        if "security group" in notice.message
    ]
    yield RULE.finding(
        f"EFA packets never reached the peer: {value(failed[0], 'error')}",
        cause="the plugin reports it: the security group of one of the two instances drops EFA's packets"
        if banner
        else "most often the security group: it must allow all traffic from and to itself. Instances in different "
        "VPCs or zones, and a peer process that is gone, look the same",
        impact="no connection between hosts can be made: the job does not start",
        fix=_FIX,
        confidence=_confidence(facts, failed, bool(banner)),
        notices=failed,
        evidence=[*first_evidence(failed)[:3], *first_evidence(banner)[:1]],
        fatal=True,
    )


def _rejected_addresses(facts: Facts) -> Iterator[Finding]:
    """Judge addresses of peers that the device rejects: it checks whether it may reach them."""
    notices = facts.errors_of_rule(RULE.name)
    if not notices or is_connected(facts):
        return
    yield RULE.finding(
        f"the EFA device rejected the address of the peer: {notices[0].message.removeprefix('NET/OFI ')}",
        cause="a security group without a rule for itself, inbound and outbound (0.0.0.0/0 does not count for EFA), "
        "instances in different subnets or zones, or different libfabric releases or providers",
        impact="no connection between these hosts can be made: the job does not start",
        fix=[*_FIX, "fi_info --version   # do all nodes have the same EFA installer and provider?"],
        confidence="possible",
        notices=notices,
        fatal=True,
    )


def _unexplained_failures(facts: Facts) -> list[Notice]:
    """Failed transfers of libfabric before 1.16, which prints the same text for all reasons."""
    failed = completions(facts) if never_connected(facts) else []
    return failed if all(map(_is_unknown, failed)) else []


def _is_unknown(notice: Notice) -> bool:
    return code_of(notice) is None and value(notice, "error") == "unknown error"


def _confidence(facts: Facts, failed: list[Notice], banner: bool) -> str:
    """An address that never answered has few causes; according to libfabric, a lost peer is one."""
    if any(map(_is_unknown, failed)):
        return "possible"
    sure = banner and never_connected(facts) and code_of(failed[0]) == UNREACHABLE
    return "certain" if sure else "likely"
