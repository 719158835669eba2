"""CollNet (in-network reduction) was requested but is unavailable."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, first_evidence, value
from nccl_inspect.judging.facts import evidence_of_settings
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find requests for CollNet: NCCL usually continues silently, but fails if NCCL_ALGO allows nothing else."""
    forced = [s for s in facts.user_settings("NCCL_ALGO") if "collnet" in s.value.lower() and "^" not in s.value]
    requests = [*facts.enabled_settings("NCCL_COLLNET_ENABLE"), *forced]
    stuck = [n for n in facts.notices("nccl/no-algorithm") if "collnet" in str(value(n, "settings")).lower()]
    refused = [*stuck, *facts.notices("nccl/collnet-unavailable")]
    searches = [] if facts.plugin("COLLNET", "loaded") else facts.plugin("COLLNET", "probe")
    searches = searches or ([] if facts.plugin("COLLNET", "loaded") else facts.plugin("NET", "not-found"))
    connected = facts.notices("nccl/collnet-connected", "nccl/collnet-chains")
    named = {"requests": requests, "stuck": stuck}
    if refused or (requests and not connected and facts.spans_hosts()):
        notices = refused or searches[:2]
        known = () if refused else ("likely",) if searches else ("open",)
        yield Hit(notices, named, known, evidence=[*first_evidence(notices)[:3], *evidence_of_settings(requests, 1)])
