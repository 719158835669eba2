"""Transfers between NICs get no response: status 12, retries exceeded."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Effects, Facts, Notice, first_evidence, value
from nccl_inspect.judging.facts import evidence_of_settings
from nccl_inspect.judging.networks.ib_errors import OTHER_ROOTS, UNANSWERED, after_another
from nccl_inspect.judging.networks.transfers import silent_peers
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.wording import listed

_USUAL_WAIT = 18
"""NCCL_IB_TIMEOUT from 2.14 on; 20 from 2.23 on."""


def find(facts: Facts) -> Iterator[Hit | Effects]:
    """Find the first failed transfers; where failover took over, NCCL continues and it is a warning."""
    late = after_another(facts)
    yield Effects(late)
    failed = [notice for notice in facts.completions(UNANSWERED) if notice not in late]
    survived = [n for n in facts.notices("nccl/ib-resilient-completion-error") if value(n, "status") == UNANSWERED]
    lost = facts.notices("nccl/ib-error-fatal", "nccl/ib-failover-impossible")
    if not failed and (not survived or facts.completions(UNANSWERED)):
        return
    notices, silent = [*failed, *survived], silent_peers(facts, failed)
    waits = [one for one in facts.user_settings("NCCL_IB_TIMEOUT") if one.value.isdigit()]
    short = [setting for setting in waits if 0 < int(setting.value) < _USUAL_WAIT]
    chosen = [*short, *(one for one in facts.user_settings("NCCL_IB_GID_INDEX") if one.value != "-1")]
    named = {
        "common": _find_common(notices),
        "silent": listed(silent),
        "chosen": chosen,
        "survived": not (failed or lost),
        "refused by others": facts.completions(*OTHER_ROOTS),
    }
    ranks = _ranks_at(facts, silent, {str(value(notice, "device")) for notice in failed})
    lines = [*first_evidence([*notices, *lost])[:4], *evidence_of_settings(chosen, 1)]
    yield Hit(notices, named, (), ranks or None, silent or None, lines)


def _ranks_at(facts: Facts, hosts: set[str], devices: set[str]) -> set[int]:
    """Return the ranks of some hosts; those that use the NICs of these names, the rails of the reporters, if any do."""
    ranks = {rank for host in facts.job.hosts if host.name in hosts for rank in host.ranks}
    on_rails = {
        path.dst
        for path in facts.inter_host_rdma_paths()
        if path.dst in ranks and any(link.receive and link.receive.nic in devices for link in path.links)
    }
    return on_rails or ranks


def _find_common(notices: list[Notice]) -> str:
    """Return the card and the peer that all of them name: look there first."""
    cards = {str(card) for notice in notices if (card := value(notice, "device"))}
    peers = {str(peer).partition("<")[0] for notice in notices if (peer := value(notice, "peer"))}
    common = [f"{what} {listed(found)}" for what, found in (("card", cards), ("peer", peers)) if len(found) == 1]
    return " and ".join(common) if len(notices) > 1 else ""
