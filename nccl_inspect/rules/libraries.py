"""Libraries and plugins that are not found, do not load or do not fit."""

from collections.abc import Iterator

from nccl_inspect.event import types as events
from nccl_inspect.event.types import NetDevices
from nccl_inspect.judging import exceptions, networks
from nccl_inspect.judging.check import Effects, Facts, Hit, Notice, first_evidence, value
from nccl_inspect.judging.facts import evidence_of_settings
from nccl_inspect.judging.impact import over_tcp
from nccl_inspect.judging.networks import (
    clue_evidence,
    failed_plugins,
    fallback,
    is_of_libfabric,
    lacking_verbs,
    lacks_a_library,
    plugins_off,
    tcp_paths,
)
from nccl_inspect.platforms import find_network
from nccl_inspect.util.grouping import group_values


def nccl_lib_missing(facts: Facts) -> Iterator[Hit | Effects]:
    """Find the errors of PyTorch and the linker, unless NCCL is used later: then the program had a fallback."""
    notices = facts.errors_of_rule("nccl-lib-missing")
    used = {id(notice) for notice in notices if facts.job.communicators or exceptions.is_used_below(facts, notice)}
    yield Effects([notice for notice in notices if id(notice) in used])
    kinds = group_values((notice.production, notice) for notice in notices if id(notice) not in used)
    yield from map(Hit, kinds.values())


def network_not_found(facts: Facts) -> Iterator[Hit]:
    """Find the warning: without NCCL_NET, Socket always works, so a setting excludes it."""
    if failed := facts.errors_of_rule("network-not-found"):
        asked = facts.settings("NCCL_NET")
        named = [str(name) for notice in failed if (name := value(notice, "net"))]
        there = facts.with_event(NetDevices, lambda event: bool(event.devices))
        broken = [notice for notice in facts.plugin("NET", "failed") if notice.level != "INFO"]
        yield Hit(
            failed,
            {
                "names": [*named, *(setting.value for setting in asked)],
                "available": [getattr(notice.event, "net", "") for notice in there],
                "broken": broken[0].message if broken else "",
            },
            evidence=[*broken[:1], *failed, *asked],
        )


_DEFAULTS = {"libnccl-net.so", "librccl-net.so"}
"""Files that NCCL and RCCL look for by default; 2.27 prints 'set by env' although nothing is set."""


def plugin_not_found(facts: Facts) -> Iterator[Hit]:
    """Find a plugin that was requested by name or that the platform's network needs; it is normal that none is there.

    Up to 2.27 NCCL looks for plugins that a setting disables, and reports them missing (src/plugin/net.cc).
    """
    missing = [notice for notice in facts.plugin("NET", "not-found") if not lacks_a_library(notice)]
    machine, off = facts.platform, plugins_off(facts)
    needed = machine is not None and bool(find_network(machine.network).plugin)
    is_on_one_host = bool(facts.job.communicators) and not facts.spans_hosts()  # a fragment may be part of a larger job
    named = {"tcp": tcp_paths(facts), "needed": needed, "machine": machine and machine.name}
    if off:
        if not is_on_one_host and not facts.inter_host_rdma_paths() and (machine is None or needed):
            yield Hit(named=named, settings=off, hosts=(), evidence=evidence_of_settings(off))
    elif missing and not facts.plugin("NET", "loaded"):
        requested = any(setting.value not in ("IB", "Socket") for setting in facts.settings("NCCL_NET"))
        is_named = requested or any(set(_files(notice)) - _DEFAULTS for notice in missing)
        tcp, verbs = fallback(facts), lacking_verbs(facts)
        if is_named or (needed and not is_on_one_host):
            files = [name for notice in missing for name in _files(notice) or [notice.message]]
            named |= {"files": files, "named": is_named, "several hosts": facts.spans_hosts()}
            yield Hit(missing, named, evidence=[*facts.plugin("NET", "requested")[:1], *missing[:3]])
        elif tcp and verbs and not tcp.is_near:
            shown = first_evidence([*missing[:2], *verbs[:1]])
            yield Hit(named={"without verbs": True}, ranks=tcp.ranks, hosts=tcp.hosts, evidence=shown)


def _files(notice: Notice) -> list[str]:
    """Return the files that NCCL tried: NCCL_NET_PLUGIN=foo makes it look for ``foo`` and ``libnccl-net-foo.so``."""
    return str(getattr(notice.event, "plugin", None) or "").split()


def socket_instead_of_rdma(facts: Facts) -> Iterator[Hit]:
    """Find TCP paths between hosts of an unknown machine type, or an available network that did not come up."""
    signs, verbs, machine = networks.slingshot_signs(facts), networks.lacking_verbs(facts), facts.platform
    network = find_network(machine.network if machine else None)
    google = network.plugin if network.vendor == "GCP" else ""
    paths = networks.tcp_paths(facts) | networks.over_tcp_provider(facts).where(lambda _: bool(signs))
    sure = paths.where(lambda kind: kind.scope == "inter")
    shown, better = sure or paths, google or ("Slingshot" if signs else "")
    named = {
        "words": networks.paths_in_words(shown) if shown else "",
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
            "other provider": networks.over_tcp_provider(facts) or facts.with_event(events.OfiProvider),
            "without provider": facts.notices("aws-ofi-nccl/ofi-no-eligible-providers")
            or facts.with_role("no-provider"),
            "tried": "aws-ofi-nccl" in dialects,
            "steps": [networks.INSTALL_SLINGSHOT, networks.CHECK_SLINGSHOT],
        }
    if paths:
        searches = [*facts.notices("nccl/net-ib-none"), *verbs][:1]
        yield Hit(
            named=named | {"poor": machine is not None and not network.rdma, "doubtful": not sure},
            evidence=[*shown.first_lines()[:3], *searches, *signs[:1]],
            paths=shown,
            open_paths=paths.exclude(sure).where(lambda _: bool(sure)),
        )
        return
    tcp, failed = fallback(facts), [one for one in failed_plugins(facts) if not is_of_libfabric(one)]
    if tcp and network.rdma and (better or failed) and not networks.settings_without_ib(facts):
        names = [str(getattr(notice.event, "plugin", "")) for notice in failed]
        named |= {"names": names, "plugins": failed and not better, "idle": tcp.may_be_idle}
        lines = [*signs, *first_evidence(failed), *first_evidence(verbs)]
        named |= {"doubtful": tcp.may_be_idle or not better}
        yield Hit(named=named, ranks=tcp.ranks, hosts=tcp.hosts, evidence=clue_evidence(lines, tcp))


def _is_not_sought(facts: Facts) -> bool:
    """Return whether NCCL lists its sockets without a search for NICs, which comes first (src/plugin/net.cc)."""
    sockets = facts.with_event(events.NetDevices, lambda event: event.net == "Socket")
    if not sockets or facts.plugin("NET", "loaded") or facts.is_rccl():
        return False
    searches = (notice for notice in facts.job.notices if "NET/IB" in notice.message or "NET/OFI" in notice.message)
    return not any(searches) and not facts.settings("NCCL_IB_DISABLE", "NCCL_NET")


_INSTEAD = "tuner instead"
"""The end of the message about the last search for an interface."""
_TUNED = ("p5", "p6")
"""Types for which aws-ofi-nccl has tuning data."""


def tuner_plugin_not_loaded(facts: Facts) -> Iterator[Hit | Effects]:
    """Find the plugin's messages, and a library that was requested but not loaded; no tuner at all is normal.

    NCCL also looks for a tuner in the network plugin's library, and reports if the last search finds none.
    """
    failed = facts.errors_of_rule("tuner-plugin-not-loaded")
    overridden = facts.notices("aws-ofi-nccl/ofi-tuner-overridden")
    unavailable = facts.notices("aws-ofi-nccl/ofi-tuner-not-available")
    requested = [one for one in facts.settings("NCCL_TUNER_PLUGIN") if one.value not in ("none", "")]
    missed = [] if facts.plugin("TUNER", "loaded") else facts.plugin("TUNER", "not-found", "probe")
    is_tuned = facts.platform is not None and facts.platform.name.startswith(_TUNED)
    has_data = is_tuned and any("Libfabric" in kind.detail for kind in facts.inter_host_net_paths().kinds)
    probes = facts.plugin("TUNER", "probe")
    ended = [notice for notice in missed if _INSTEAD in notice.message and notice in probes]
    is_missing = not (failed or overridden or unavailable) and bool(requested or has_data)
    yield Effects(failed)
    if notices := failed or overridden or unavailable or (missed if is_missing else ended):
        named = {
            "failed": failed,
            "given": facts.user_settings("NCCL_ALGO", "NCCL_PROTO"),
            "tuned": any(str(value(notice, "platform")).startswith(_TUNED) for notice in notices),
            "missing": is_missing,
            "requested": requested,
        }
        shown = evidence_of_settings(requested, 1) if is_missing else []
        yield Hit(notices, named, evidence=[*shown, *notices[:3]])
