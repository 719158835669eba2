"""Fused NICs have different numbers of ports at the two ends."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, first_evidence, value
from nccl_inspect.judging.facts import evidence_of_settings
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find the warnings; NCCL continues with the ports it has, unless it is forced to fuse them.

    Errors end initialization (src/graph/topo.cc); 2.26 and later continue only where they chose the ports.
    """
    refused = facts.notices("nccl/ib-merge-disabled")
    unequal = facts.notices("nccl/ib-device-count-mismatch")
    if wrong := facts.notices("nccl/nic-fusion-invalid"):
        asked = facts.user_settings("NCCL_NET_FORCE_MERGE", "NCCL_NET_MERGE_LEVEL")
        named = {"asked": asked, "by default": any(value(notice, "__step") for notice in wrong), "forbidden": refused}
        yield Hit(wrong, named, evidence=[*first_evidence([*refused, *wrong]), *evidence_of_settings(asked, 1)])
        refused = []
    if found := [*unequal, *refused]:
        yield Hit(found, {"dead": refused and facts.job.failed and not facts.job.paths})
