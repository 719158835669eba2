"""Ranks of one communicator use different networks."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Evidence, Facts, first_evidence, value
from nccl_inspect.judging.facts import first_lines, global_ranks, hosts_in, hosts_of_paths, hosts_with, ranks_of_paths
from nccl_inspect.judging.networks import fabrics
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.model.job import CommunicatorInfo, PathKind
from nccl_inspect.util.wording import ranks_word


def find(facts: Facts) -> Iterator[Hit]:
    """Find communicators with several networks, and connections whose two ends name different ones.

    Where neither is in the log, a refused connection shows it, or hosts of which only some have cards.
    """
    mixed = sorted((comm for comm in facts.job.communicators if len(comm.networks) > 1), key=lambda comm: -comm.nranks)
    crossed = facts.paths(transport="NET").where(lambda kind: kind.also).only(("kind", "communicators"), _is_crossed)
    without = fabrics.without_cards(facts)
    if mixed or crossed:
        odd = _odd_ranks(mixed)
        where = set(hosts_with(facts.job, odd))
        lacking = [notice for notice in without if set(notice.hosts) <= where]
        named, refused = _outcome(facts, mixed, bool(crossed)), _refused(facts)
        if mixed:
            named |= {"comm": mixed[0].id, "groups": _groups(mixed[0])}
        else:
            both = [crossed[0].detail, *(other.detail for other in crossed[0].also if other.transport == "NET")]
            named |= {"networks": " and ".join(both), "src": crossed[0].src, "dst": crossed[0].dst}
        lines = [line for comm in mixed[:1] for line in comm.network_lines]
        yield Hit(
            named=named | {"odd": odd, "lacking": lacking and fabrics.no_cards_on(lacking)},
            ranks=odd or ranks_of_paths(crossed),
            hosts=where or {host for comm in mixed[:1] for host in comm.hosts} or hosts_of_paths(crossed),
            evidence=[*first_evidence(lacking)[:1], *lines, *first_lines(crossed)[:2], *refused[:2]],
            paths=crossed,
        )
    elif notices := fabrics.network_mismatches(facts):
        typed = [notice for notice in notices if value(notice, "got_type") is not None]
        peer, own = (typed and fabrics.NETWORK_TYPES[value(typed[0], f"{end}_type")] for end in ("got", "expected"))
        failed = facts.plugin("NET", "failed")
        others = [notice for notice in failed if not set(notice.processes) & set(notices[0].processes)]
        named = {"met": True, "peer": peer, "own": own, "failed": failed}
        yield Hit(notices, named, evidence=first_evidence([*notices[:3], *others[:1]]))
    elif without and not any(comm.networks for comm in facts.job.communicators) and not facts.paths(transport="NET"):
        others = fabrics.card_lists(facts)
        named = {"hosts_with": hosts_in(others), "hosts_without": hosts_in(without)}
        named["lacking"] = fabrics.no_cards_on(without)
        yield Hit(without, named, evidence=first_evidence([*without[:2], *others[:2]]))


def _outcome(facts: Facts, mixed: list[CommunicatorInfo], is_crossed: bool) -> dict[str, object]:
    """Return what happened to communicators with several networks."""
    if not is_crossed and all(comm.nnodes == 1 or len(comm.hosts) == 1 for comm in mixed):
        return {"unused": True}
    names = {comm.id for comm in mixed}
    joined = facts.inter_host_net_paths().distinct("communicators")
    works = not facts.job.failed and any(names.intersection(comms) for (comms,) in joined)
    is_dead = is_crossed or bool(_refused(facts)) or facts.job.failed
    is_stuck = bool(mixed) and not works and facts.none_initialized(mixed) and not facts.job.excerpt  # or it was cut
    return {"by chance": works and not is_dead, "fatal": is_dead or is_stuck, "guessed": not (mixed and is_dead)}


def _is_crossed(kind: PathKind, communicators: tuple[str, ...]) -> bool:
    """Whether one communicator shows two networks for one pair: each end prints its own."""
    return not kind.guessed and any(
        other.transport == "NET"
        and other.detail != kind.detail
        and not set(other.communicators).isdisjoint(communicators)
        for other in kind.also
    )


def _refused(facts: Facts) -> list[Evidence]:
    """NCCL's lines where a connection of one network reaches a listener of another."""
    wrong_type = [notice for notice in facts.with_role("stranger") if value(notice, "got_type") is not None]
    return first_evidence([*wrong_type, *facts.with_role("garbled-address")])


def _odd_ranks(mixed: list[CommunicatorInfo]) -> set[int]:
    """The ranks outside the largest group; among equally large ones those on Socket, the last resort."""
    for comm in mixed:
        (_, most), *rest = sorted(comm.networks.items(), key=lambda group: (-len(group[1]), group[0] == "Socket"))
        if len(most) > len(rest[0][1]) or rest[0][0] == "Socket":
            return {rank for _, ranks in rest for rank in global_ranks(comm, ranks)}
    return set()


def _groups(comm: CommunicatorInfo) -> str:
    return "; ".join(f"{net} on {ranks_word(global_ranks(comm, ranks))}" for net, ranks in comm.networks.items())
