"""A required network plugin was not found."""

from collections.abc import Iterator

from nccl_inspect import platforms
from nccl_inspect.judging.engine import Facts, Notice, first_evidence
from nccl_inspect.judging.facts import evidence_of_settings
from nccl_inspect.judging.networks.fabrics import lacking_verbs, lacks_a_library, plugins_off, tcp_paths
from nccl_inspect.judging.networks.fallback import fallback
from nccl_inspect.judging.page_words import Hit

_DEFAULTS = {"libnccl-net.so", "librccl-net.so"}
"""Files that NCCL and RCCL look for by default; 2.27 prints 'set by env' although nothing is set."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find a plugin that was requested by name or that the platform's network needs; it is normal that none is there.

    Up to 2.27 NCCL looks for plugins that a setting disables, and reports them missing (src/plugin/net.cc).
    """
    missing = [notice for notice in facts.plugin("NET", "not-found") if not lacks_a_library(notice)]
    machine, off = facts.platform, plugins_off(facts)
    needed = machine is not None and bool(platforms.find_network(machine.network).plugin)
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
            yield Hit(missing, named, evidence=first_evidence([*facts.plugin("NET", "requested")[:1], *missing[:3]]))
        elif tcp and verbs and not tcp.is_near:
            shown = first_evidence([*missing[:2], *verbs[:1]])
            yield Hit(named={"without verbs": True}, ranks=tcp.ranks, hosts=tcp.hosts, evidence=shown)


def _files(notice: Notice) -> list[str]:
    """The files that NCCL tried: NCCL_NET_PLUGIN=foo makes it look for ``foo`` and ``libnccl-net-foo.so``."""
    return str(getattr(notice.event, "plugin", None) or "").split()
