"""Ranks of one host use the network."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.facts import evidence_of_settings, first_lines
from nccl_inspect.judging.hardware.peer_to_peer import disabling_settings, local_over_net
from nccl_inspect.judging.impact import in_use
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find NET paths between ranks of one host name."""
    if doubtful := facts.paths("intra", "NET").where(lambda kind: kind.doubtful):
        yield Hit(named={"doubtful": True}, paths=doubtful)
    if pairs := local_over_net(facts):
        shm_off = facts.enabled_settings("NCCL_SHM_DISABLE")
        settings = [*disabling_settings(facts), *shm_off]
        nvlink = facts.platform is not None and bool(facts.platform.nvlink)
        named = {
            "set": settings,
            "net": in_use(pairs, facts.platform),
            "without shm": shm_off,
            "chosen": all(kind.gdr is True for kind in pairs.kinds) and not settings and not nvlink,
        }
        shown = [*first_lines(pairs)[:3], *evidence_of_settings(settings, 1)]
        yield Hit(named=named, evidence=shown, paths=pairs)
