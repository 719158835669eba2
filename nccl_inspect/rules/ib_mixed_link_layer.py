"""InfiniBand and RoCE ports are used together."""

from collections.abc import Iterator

from nccl_inspect.event.types import NetDevices
from nccl_inspect.judging.engine import Facts, Notice, first_evidence, value
from nccl_inspect.judging.facts import first_lines, hosts_in, ranks_in
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.wording import does, some_names

_BOTH = {"IB", "RoCE"}


def find(facts: Facts) -> Iterator[Hit]:
    """Find connections that fail; else whether traffic uses ports of both kinds."""
    clashes = facts.notices("nccl/ib-link-layer-mixed", "nccl/ib-devices-incompatible")
    # NCCL continues and uses the ports separately.
    unmerged = [notice for notice in clashes if value(notice, "__step") == "merge"]
    failed = [notice for notice in clashes if notice not in unmerged]
    lists = [n for n in facts.with_event(NetDevices) if set(_links(n).values()) >= _BOTH]
    kinds = {name: link for notice in lists for name, link in _links(notice).items()}
    paths = facts.inter_host_net_paths().where(lambda kind: kind.nic in kinds)
    used = sorted({kind.nic for kind in paths.kinds if kind.nic})
    both = {kinds[nic] for nic in used} == _BOTH
    notices = [*failed, *unmerged, *facts.notices("nccl/ib-merge-link-layer")]
    if not notices and not paths:
        yield from _find_apart(facts)
        return
    notices += lists
    named = {
        "failed": failed,
        "unlisted": not lists,
        "both": both,
        "used": [f"{nic} ({kinds[nic]})" for nic in used],
    }
    ranks = ranks_in(failed) or (paths.ends() if both else ranks_in(notices))
    lines = [*first_evidence(notices)[:3], *first_lines(paths)[:2]]
    yield Hit(notices, named, (), ranks, hosts_in(notices), lines)


def _find_apart(facts: Facts) -> Iterator[Hit]:
    """Find hosts that list only InfiniBand ports while others list only RoCE ports, before hosts connect."""
    kinds: dict[str, set[str]] = {}
    lists = [notice for notice in facts.with_event(NetDevices) if _links(notice)]
    for notice in lists:
        for host in notice.hosts:
            kinds.setdefault(host, set()).update(_links(notice).values())
    one_kind = {kind: sorted(host for host, links in kinds.items() if links == {kind}) for kind in sorted(_BOTH)}
    if all(one_kind.values()) and not facts.paths(transport="NET"):
        words = (f"{some_names(some)} {does(len(some), 'list')} only {kind} ports" for kind, some in one_kind.items())
        first = (next(one for one in lists if some[0] in one.hosts) for some in one_kind.values())
        yield Hit([], {"apart": "; ".join(words)}, (), ranks_in(lists), kinds, first_evidence(first))


def _links(notice: Notice) -> dict[str, str]:
    """Return the kind of link of each InfiniBand or RoCE device in a list."""
    event = notice.event
    if not isinstance(event, NetDevices) or event.net != "IB":
        return {}
    return {str(device[1]): str(device[-1]) for device in event.devices}
