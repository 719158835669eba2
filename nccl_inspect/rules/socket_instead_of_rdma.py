"""Traffic between hosts uses TCP, and the log has no sign of an RDMA network."""

from collections.abc import Iterator

from nccl_inspect import platforms
from nccl_inspect.event import types as events
from nccl_inspect.judging.engine import Facts, first_evidence
from nccl_inspect.judging.facts import first_lines
from nccl_inspect.judging.impact import over_tcp
from nccl_inspect.judging.networks import fabrics, slingshot
from nccl_inspect.judging.networks.fallback import clue_evidence, failed_plugins, fallback, is_of_libfabric
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find TCP paths between hosts of an unknown machine type, or an available network that did not come up."""
    signs, verbs, machine = slingshot.signs(facts), fabrics.lacking_verbs(facts), facts.platform
    network = platforms.find_network(machine.network if machine else None)
    google = network.plugin if network.vendor == "GCP" else ""
    paths = fabrics.tcp_paths(facts) | fabrics.over_tcp_provider(facts).where(lambda _: bool(signs))
    sure = paths.where(lambda kind: kind.scope == "inter")
    shown, better = sure or paths, google or ("Slingshot" if signs else "")
    named = {
        "words": fabrics.paths_in_words(shown) if shown else "",
        "cost": over_tcp(machine),
        "better": better,
        "google": google,
        "machine": machine and machine.name,
        "verbs": verbs,
        "none found": facts.notices("nccl/net-ib-none"),
        "unsought": not verbs and not facts.notices("nccl/net-ib-none") and _is_not_sought(facts),
    }
    if signs and not google:
        dialects = {notice.event.dialect for notice in facts.job.notices if notice.event}
        named |= {
            "slingshot": True,
            "other provider": fabrics.over_tcp_provider(facts) or facts.with_event(events.OfiProvider),
            "without provider": facts.notices("aws-ofi-nccl/ofi-no-eligible-providers")
            or facts.with_role("no-provider"),
            "tried": "aws-ofi-nccl" in dialects,
            "steps": [slingshot.INSTALL, slingshot.CHECK],
        }
    if paths:
        searches = [*facts.notices("nccl/net-ib-none"), *verbs][:1]
        yield Hit(
            named=named | {"poor": machine is not None and not network.rdma, "doubtful": not sure},
            evidence=[*first_lines(shown)[:3], *first_evidence(searches), *signs[:1]],
            paths=shown,
            open_paths=paths.without(sure).where(lambda _: bool(sure)),
        )
        return
    tcp, failed = fallback(facts), [one for one in failed_plugins(facts) if not is_of_libfabric(one)]
    if tcp and network.rdma and (better or failed) and not fabrics.disabling_settings(facts):
        names = [str(getattr(notice.event, "plugin", "")) for notice in failed]
        named |= {"names": names, "plugins": failed and not better, "idle": tcp.may_be_idle}
        lines = [*signs, *first_evidence(failed), *first_evidence(verbs)]
        named |= {"doubtful": tcp.may_be_idle or not better}
        yield Hit(named=named, ranks=tcp.ranks, hosts=tcp.hosts, evidence=clue_evidence(lines, tcp))


def _is_not_sought(facts: Facts) -> bool:
    """Whether NCCL lists its sockets without a search for NICs, which comes first (src/plugin/net.cc)."""
    sockets = facts.with_event(events.NetDevices, lambda event: event.net == "Socket")
    if not sockets or facts.plugin("NET", "loaded") or facts.is_rccl():
        return False
    searches = (notice for notice in facts.job.notices if "NET/IB" in notice.message or "NET/OFI" in notice.message)
    return not any(searches) and not facts.settings("NCCL_IB_DISABLE", "NCCL_NET")
