"""A card is visible but cannot be used."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, value
from nccl_inspect.judging.networks.fabrics import tcp_paths
from nccl_inspect.judging.networks.ib_errors import AT_START, REFUSED
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.wording import listed


def find(facts: Facts) -> Iterator[Hit]:
    """Find calls that a card refuses, and cards that NCCL skips."""
    calls, unusable = facts.notices("nccl/ib-call-failed"), facts.notices("nccl/ib-device-not-usable")
    refused = [n for n in calls if value(n, "error") in REFUSED and value(n, "name") not in AT_START]
    if refused or unusable:
        named = {
            "refused": refused[0].message if refused else "",
            "names": listed(str(name) for n in unusable if (name := value(n, "device"))) or "a port",
            "connecting": any(value(notice, "name") == "modify_qp" for notice in refused),
            "over TCP": tcp_paths(facts),
        }
        yield Hit([*refused, *unusable, *(n for n in calls if value(n, "name") in AT_START)], named)
