"""Traffic between hosts uses TCP, and the log has no sign of an RDMA network."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.event import types as events
from nccl_inspect.judging.engine import Facts, Finding, Results, Rule, first_evidence
from nccl_inspect.judging.facts import first_lines
from nccl_inspect.judging.impact import Estimate, over_tcp
from nccl_inspect.judging.networks import fabrics, slingshot
from nccl_inspect.judging.networks.fallback import (
    CONFIRM,
    clue_evidence,
    failed_plugins,
    fallback,
    is_of_libfabric,
)
from nccl_inspect.judging.remedies import EFA_CHECK, EFA_IN_POD, NOTHING, RDMA_IN_DOCKER, RDMA_IN_POD
from nccl_inspect.platforms import networks
from nccl_inspect.platforms.networks import Network
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="socket-instead-of-rdma",
    category="network",
    severity="warning",
    title="Hosts talk over TCP sockets, and the log has no sign of an RDMA network",
    may_cause=("slow",),
    shows=("no-efa", "no-ib"),
)
_NO_RDMA = "(TCP, no RDMA)"
_LOOK = "env | grep -E 'NCCL_(NET|IB_DISABLE)'; cat /etc/nccl.conf ~/.nccl.conf   # in the container"


def judge(facts: Facts) -> Results:
    """Judge TCP paths between hosts of an unknown machine type, or the signs that they will use TCP."""
    paths = fabrics.tcp_paths(facts) | fabrics.over_tcp_provider(facts).where(lambda _: slingshot.signs(facts))
    if not paths:
        yield from _clue(facts)
        return
    sure = paths.where(lambda kind: kind.scope == "inter")
    doubtful = paths.without(sure).where(lambda _: sure)
    reason = _as_expected(facts) or _avoidable(facts, bool(sure))
    paths = sure or paths
    yield RULE.finding(
        f"{fabrics.paths_in_words(paths)} over {listed(kind.detail for kind in paths.kinds)} {reason.instead}",
        cause=reason.cause,
        impact=reason.impact,
        fix=reason.fix,
        severity=reason.severity,
        confidence=reason.confidence,
        evidence=[
            *first_lines(paths)[:3],
            *first_evidence([*facts.notices("nccl/net-ib-none"), *fabrics.lacking_verbs(facts)][:1]),
            *slingshot.signs(facts)[:1],
        ],
        paths=paths,
        open_paths=doubtful,
    )


@frozen
class _Reason(Frozen):
    """Why paths use TCP."""

    instead: str
    cause: str
    impact: str | Estimate
    fix: list[str]
    severity: str
    confidence: str


def _as_expected(facts: Facts) -> _Reason | None:
    """The reason if the machine has no other network."""
    machine = facts.platform
    if machine is None or networks.named(machine.network).rdma:
        return None
    impact = "none that can be fixed: TCP is the only network of this machine"
    return _Reason(_NO_RDMA, f"{machine.name} has no RDMA network", impact, [NOTHING], "info", "certain")


def _avoidable(facts: Facts, is_sure: bool) -> _Reason:
    better = _better(facts)
    return _Reason(
        f"instead of {better}" if better else _NO_RDMA,
        cause=_cause(facts),
        impact=over_tcp(facts.platform),
        fix=_fixes(facts),
        severity="error" if better else "warning",
        confidence="likely" if is_sure else "possible",
    )


def _clue(facts: Facts) -> Iterator[Finding]:
    """The signs before hosts talk: an available network did not come up."""
    tcp_fallback = fallback(facts)
    if not tcp_fallback or not _network(facts).rdma or fabrics.disabling_settings(facts):
        return
    better, failed = _better(facts), [n for n in failed_plugins(facts) if not is_of_libfabric(n)]
    if not (better or failed):
        return
    names = listed(str(getattr(notice.event, "plugin", "")) for notice in failed)
    yield RULE.clue(
        f"hosts are left with TCP instead of {better}"
        if better
        else f"hosts are left with TCP: the network plugin {names} does not come up",
        cause=_cause(facts) if better else "the lines above these show why the plugin does not come up",
        impact=over_tcp(facts.platform),
        fix=_fixes(facts),
        confirm=CONFIRM,
        severity=tcp_fallback.severity,
        confidence=tcp_fallback.confidence(bool(better)),
        ranks=tcp_fallback.ranks,
        hosts=tcp_fallback.hosts,
        evidence=clue_evidence(
            [*slingshot.signs(facts), *first_evidence(failed), *first_evidence(fabrics.lacking_verbs(facts))],
            tcp_fallback,
        ),
    )


def _better(facts: Facts) -> str | None:
    """The network of these machines that needs a plugin, if known."""
    return _google_plugin(facts) or ("Slingshot" if slingshot.signs(facts) else None)


def _google_plugin(facts: Facts) -> str:
    """The plugin of Google that the network needs, with a daemon beside the job; empty for other networks."""
    network = _network(facts)
    return network.plugin if network.vendor == "GCP" else ""


def _network(facts: Facts) -> Network:
    return networks.named(facts.platform.network if facts.platform else None)


def _fixes(facts: Facts) -> list[str]:
    if google := _google_plugin(facts):
        return [
            f"Install the plugin for {google} on the nodes (GKE: DaemonSet nccl-tcpx-installer, "
            "nccl-tcpxo-installer), mount it into the container and put its folder on LD_LIBRARY_PATH.",
            "Run the daemon beside the job (receive-datapath-manager), and give the pod the interfaces eth1, eth2, ….",
            "source <path>/nccl-env-profile.sh   # of the plugin: sets the variables that this network needs",
        ]
    if slingshot.signs(facts):
        return [
            slingshot.INSTALL,
            slingshot.CHECK,
            "FI_PROVIDER=cxi   # on all ranks; unset it if it names another provider",
            'NCCL_NET="AWS Libfabric"   # makes it fail early instead of falling back (Libfabric since plugin 1.13)',
        ]
    return [
        *([fabrics.VERBS] if fabrics.lacking_verbs(facts) else []),
        *([_LOOK] if _not_sought(facts) else []),
        "lspci | grep -iE 'elastic fabric|mellanox|connectx|infiniband'   # on the node: does it list such a NIC?",
        EFA_IN_POD,
        EFA_CHECK,
        RDMA_IN_POD,
        RDMA_IN_DOCKER,
        "NCCL_NET=IB   # afterwards: makes it fail early instead of falling back",
    ]


def _cause(facts: Facts) -> str:
    """The state of NCCL's search for NICs, or of the plugin that the network needs."""
    if google := _google_plugin(facts):
        return f"the plugin of {google} is not in use: not in the image or on LD_LIBRARY_PATH, or its daemon is down"
    if slingshot.signs(facts):
        return _cause_on_slingshot(facts)
    if fabrics.lacking_verbs(facts):
        return (
            "libibverbs is not in the image: NCCL cannot look for InfiniBand and RoCE NICs, and the log does not show "
            "whether the machines have any"
        )
    if facts.notices("nccl/net-ib-none"):
        return "NCCL found no RDMA device; the log does not show whether the machines have one (set --platform NAME)"
    if _not_sought(facts):
        return (
            "likely a setting that the log does not show: NCCL did not look for InfiniBand and RoCE at all (no line "
            "with NET/IB or libibverbs). NCCL_IB_DISABLE does that, and NCCL_NET=Socket (2.12, and since 2.28.7; other "
            "releases look anyway), in the environment or in nccl.conf"
        )
    return "not proved: the log does not show which networks NCCL found on these machines"


def _cause_on_slingshot(facts: Facts) -> str:
    if fabrics.over_tcp_provider(facts) or facts.with_event(events.OfiProvider):
        return "libfabric offers its tcp provider, not cxi: it is not the site's libfabric, or /dev/cxi* is missing"
    if facts.notices("aws-ofi-nccl/ofi-no-eligible-providers") or facts.with_role("no-provider"):
        return "aws-ofi-nccl finds no provider: its libfabric has no cxi, or the NICs (/dev/cxi*) are missing"
    if any(notice.event and notice.event.dialect == "aws-ofi-nccl" for notice in facts.job.notices):
        return "aws-ofi-nccl was tried and did not come up"
    return "aws-ofi-nccl was not loaded: it is not in the image, or its folder is not on LD_LIBRARY_PATH"


def _not_sought(facts: Facts) -> bool:
    """Whether NCCL lists its sockets without a search for NICs, which comes first (src/plugin/net.cc)."""

    def is_socket(event: events.Event) -> bool:
        return isinstance(event, events.NetDevices) and event.net == "Socket"

    if not facts.with_event(events.NetDevices, is_socket) or facts.plugin("NET", "loaded") or facts.is_rccl():
        return False
    searches = (notice for notice in facts.job.notices if "NET/IB" in notice.message or "NET/OFI" in notice.message)
    return not any(searches) and not fabrics.lacking_verbs(facts) and not facts.settings("NCCL_IB_DISABLE", "NCCL_NET")
