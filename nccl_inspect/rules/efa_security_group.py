"""EFA packets never reached the peer: usually the security group drops them."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, Notice, first_evidence, value
from nccl_inspect.judging.networks.efa_completions import (
    UNREACHABLE,
    code_of,
    completions,
    is_connected,
    never_connected,
    unreachable_peers,
)
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find failures of the first transfers, or addresses of peers that the device rejects.

    Failures after connections were made mean that the peer is gone. Before 1.16, libfabric prints the same text for all
    reasons.
    """
    rejected, apart = facts.errors_of_rule("efa-security-group"), never_connected(facts)
    unexplained = completions(facts) if apart else []
    failed = unreachable_peers(facts) or (unexplained if all(map(_is_unknown, unexplained)) else [])
    if failed:
        banner = facts.notices("aws-ofi-nccl/ofi-security-group-banner")
        banner = [notice for notice in banner if "security group" in notice.message]
        named = {
            "error": value(failed[0], "error"),
            "banner": banner,
            "unknown": any(map(_is_unknown, failed)),
            "unreachable": apart and code_of(failed[0]) == UNREACHABLE,
        }
        yield Hit(failed, named, evidence=[*first_evidence(failed)[:3], *first_evidence(banner)[:1]])
    elif rejected and not is_connected(facts):
        yield Hit(rejected, {"rejected": rejected[0].message.removeprefix("NET/OFI ")})


def _is_unknown(notice: Notice) -> bool:
    return code_of(notice) is None and value(notice, "error") == "unknown error"
