"""NCCL_SHM_DISABLE keeps ranks of one host from using shared memory."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.facts import evidence_of_settings, hosts_of_paths
from nccl_inspect.judging.hardware.peer_to_peer import disabling_settings, has_no_pairs, local_over_net
from nccl_inspect.judging.impact import in_use
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find its effect: local pairs with P2P lose nothing; the others can only use the network."""
    settings, off = facts.enabled_settings("NCCL_SHM_DISABLE"), disabling_settings(facts)
    lacks_p2p = bool(off) or bool(facts.platform and facts.platform.p2p is False)
    if settings and lacks_p2p and not facts.paths("intra") and not has_no_pairs(facts):
        both = [*settings, *off]
        yield Hit(
            settings=settings, named={"both": both, "several": len(both) > 1}, evidence=evidence_of_settings(both, 1)
        )
    elif settings:
        slow = local_over_net(facts)
        yield Hit(
            settings=settings,
            named={"slow": bool(slow), "net": in_use(slow, facts.platform)},
            hosts=hosts_of_paths(slow) or None,
            evidence=evidence_of_settings(settings),
            paths=slow,
        )
