"""A required network plugin was not found."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, Finding, Notice, Results, Rule, first_evidence
from nccl_inspect.judging.facts import as_shell, evidence_of_settings
from nccl_inspect.judging.impact import Outcome
from nccl_inspect.judging.networks.fabrics import VERBS, lacking_verbs, lacks_a_library, plugins_off, tcp_paths
from nccl_inspect.judging.networks.fallback import fallback
from nccl_inspect.model.job import Setting
from nccl_inspect.platforms import Platform, networks
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="plugin-not-found",
    category="plugins",
    severity="warning",
    title="A network plugin that was requested, or that this platform needs, was not found",
    may_cause=("mixed-networks", "no-network", "no-efa", "no-ib"),
    nest_under_effect=True,
    local=True,
)
_DEFAULTS = {"libnccl-net.so", "librccl-net.so"}
"""Files that NCCL and RCCL look for by default; 2.27 prints 'set by env' although nothing is set."""


def judge(facts: Facts) -> Results:
    """A missing plugin is normal; it counts if it was requested by name or if the platform's network needs it."""
    missing = [notice for notice in facts.plugin("NET", "not-found") if not lacks_a_library(notice)]
    if off := plugins_off(facts):
        yield from _disabled(facts, off)
    elif missing and not facts.plugin("NET", "loaded"):
        requested = [setting for setting in facts.settings("NCCL_NET") if setting.value not in ("IB", "Socket")]
        is_named = bool(requested) or any(set(_files(notice)) - _DEFAULTS for notice in missing)
        if is_named or (_needs_plugin(facts.platform) and not _is_on_one_host(facts)):
            yield _missing(facts, missing, is_named=is_named)
        else:
            yield from _clue(facts, missing)


def _missing(facts: Facts, missing: list[Notice], *, is_named: bool) -> Finding:
    """The plugin that was requested by name, or that the network of the machine needs."""
    names = listed(name for notice in missing for name in _files(notice) or [notice.message])
    machine = facts.platform.name if facts.platform else ""
    outcome = _outcome(facts)
    return RULE.finding(
        f"the network plugin was not found: {names}",
        cause="the plugin is requested by name but not in the image, or its folder is not on LD_LIBRARY_PATH"
        if is_named
        else f"{machine} needs a plugin for its network, and the image has none",
        impact=outcome.impact,
        fix=[
            "ldconfig -p | grep libnccl-net; echo $LD_LIBRARY_PATH   # inside the container: is the plugin "
            "in one of the folders?",
            "NCCL_NET_PLUGIN=<suffix>   # must match libnccl-net-<suffix>.so; unset it if you do not want a plugin",
        ],
        severity=outcome.severity,
        notices=missing,
        evidence=first_evidence([*facts.plugin("NET", "requested")[:1], *missing[:3]]),
    )


def _outcome(facts: Facts) -> Outcome:
    if tcp_paths(facts):
        return Outcome("error", "hosts talk over TCP")
    severity = "warning" if facts.spans_hosts() else "info"
    return Outcome(severity, "the log has no path between hosts yet; NCCL falls back to InfiniBand or TCP")


def _clue(facts: Facts, missing: list[Notice]) -> Iterator[Finding]:
    """Judge an image with neither a plugin nor libibverbs: only TCP is left, whatever the machines have."""
    tcp_fallback, no_verbs = fallback(facts), lacking_verbs(facts)
    if not tcp_fallback or not no_verbs or tcp_fallback.is_near:
        return
    yield RULE.clue(
        "the image has neither a network plugin nor libibverbs: hosts can only talk over TCP",
        cause="machines without EFA, InfiniBand or RoCE NICs need neither; for other machines the image lacks them",
        impact="none on one host, or on machines without such NICs",
        fix=[
            VERBS,
            "Use an image with the network plugin that these machines need.",
        ],
        confirm="Run lspci on a host: does it list an InfiniBand, RoCE or EFA NIC?",
        severity="info",
        confidence="possible",
        ranks=tcp_fallback.ranks,
        hosts=tcp_fallback.hosts,
        evidence=[*first_evidence(missing[:2]), *first_evidence(no_verbs[:1])],
    )


def _disabled(facts: Facts, off: list[Setting]) -> Iterator[Finding]:
    """Judge plugins disabled by a setting: it counts if the machine's network needs one.

    Up to 2.27 NCCL still looks for a file of that name and reports it missing (src/plugin/net.cc).
    """
    machine = facts.platform
    needed = _needs_plugin(machine)
    slow = tcp_paths(facts)
    if _is_on_one_host(facts) or facts.inter_host_rdma_paths() or (machine is not None and not needed):
        return
    yield RULE.finding(
        f"external network plugins are disabled: {as_shell(off)}",
        cause=f"{as_shell(off)} is set on purpose, or left over: NCCL can then use InfiniBand, RoCE and TCP only"
        + (f"; {machine.name} needs a plugin for its network" if machine else ""),
        impact="hosts talk over TCP" if slow else "none, unless the network needs a plugin (EFA, gIB, GPUDirect-TCPX)",
        fix=[
            "unset NCCL_NET_PLUGIN   # if the network needs a plugin; also check /etc/nccl.conf and the image",
            "ldconfig -p | grep libnccl-net; echo $LD_LIBRARY_PATH   # inside the container: is a plugin installed?",
        ],
        severity="error" if needed and slow else "warning" if slow else "info",
        confidence="certain" if needed else "likely",
        ranks=facts.ranks_with(off),
        evidence=evidence_of_settings(off),
    )


def _is_on_one_host(facts: Facts) -> bool:
    """Whether the job is known to need no network; a fragment may be part of a larger job."""
    return bool(facts.job.communicators) and not facts.spans_hosts()


def _files(notice: Notice) -> list[str]:
    """The files that NCCL tried: NCCL_NET_PLUGIN=foo makes it look for ``foo`` and ``libnccl-net-foo.so``."""
    return str(getattr(notice.event, "plugin", None) or "").split()


def _needs_plugin(machine: Platform | None) -> bool:
    return machine is not None and bool(networks.named(machine.network).plugin)
