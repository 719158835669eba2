"""NCCL_P2P_DISABLE or NCCL_P2P_LEVEL keeps GPUs of one host from communicating directly."""

from collections.abc import Iterator

from nccl_inspect.event.types import P2pRefused
from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.facts import evidence_of_settings, hosts_of_paths
from nccl_inspect.judging.hardware.peer_to_peer import disabling_settings, has_no_pairs, limiting_levels
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find local pairs that could use P2P and do not: numbers and names of levels are in src/graph/paths.cc."""
    settings, local, on_nvlink = (
        disabling_settings(facts),
        facts.paths("intra"),
        facts.platform and facts.platform.nvlink,
    )
    slow = local.where(lambda kind: kind.transport != "P2P" and facts.allows_p2p(kind) is not False)
    levels = limiting_levels(facts, slow)
    found = Hit(hosts=hosts_of_paths(slow), paths=slow)
    if slow and settings:
        nvlink = any((kind.pair_class or ("NV" if on_nvlink else "")).startswith("NV") for kind in slow.kinds)
        shown = evidence_of_settings(settings)
        yield found.with_fields(
            settings=settings, ranks=facts.ranks_with(settings), evidence=shown, named={"nvlink": nvlink}
        )
    elif levels and len(slow) < len(local) and not facts.with_event(P2pRefused):  # other pairs of the machine use P2P
        shown = evidence_of_settings(levels)
        yield found.with_fields(settings=levels, evidence=shown, named={"limit": True})
    elif settings and not local and not has_no_pairs(facts) and not (facts.platform and facts.platform.p2p is False):
        yield Hit(settings=settings)
