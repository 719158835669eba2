"""Traffic between hosts over TCP although EFA was meant."""

from collections.abc import Iterator

from nccl_inspect.impact import over_tcp
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, ends, first_lines, hosts_of, listed
from nccl_inspect.rules.remedies import EFA_CHECK, EFA_IN_POD, LOCKED_MEMORY_IN_POD, RDMA_IN_DOCKER
from nccl_inspect.rules.socket_instead_of_rdma import (
    efa_hints,
    over_tcp_provider,
    plugins_off,
    sought_plugin,
    tcp_paths,
    wording,
)

RULE = Rule(
    name="socket-instead-of-efa",
    category="network",
    severity="error",
    title="Hosts talk over TCP sockets although EFA is there or was asked for",
    echo_of=("mixed-networks",),
    because=(
        "ib-bad-device",
        "efa-provider-missing",
        "efa-libfabric-incompat",
        "efa-init-failed",
        "plugin-load-failed",
        "plugin-not-found",
    ),
)

_INSTALL = "Put libfabric and aws-ofi-nccl of the EFA installer into the image and on LD_LIBRARY_PATH."


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge TCP paths where aws-ofi-nccl, a setting or the platform says that EFA should carry them."""
    provider = over_tcp_provider(facts)
    paths = [*tcp_paths(facts), *provider]
    network = facts.platform.network if facts.platform else None
    expected = network == "efa"
    hints = efa_hints(facts)
    if not paths or not (expected or (hints and network is None)):
        return  # a platform of another network leaves the judgement to its own rule
    facts.mark(paths, RULE.name)
    tried = [notice for notice in facts.job.notices if notice.event and notice.event.dialect == "aws-ofi-nccl"]
    yield RULE.finding(
        f"{wording(paths)} over {listed(path.detail for path in paths)} instead of EFA",
        cause=_cause(facts, bool(tried), bool(provider)),
        impact=over_tcp(facts.platform),
        fix=[
            *(["unset NCCL_NET_PLUGIN   # first: 'none' lets NCCL look for no plugin"] if plugins_off(facts) else []),
            *([_INSTALL] if sought_plugin(facts) else []),
            EFA_IN_POD,
            LOCKED_MEMORY_IN_POD,
            *([] if sought_plugin(facts) else [_INSTALL]),
            RDMA_IN_DOCKER,
            EFA_CHECK,
            "NCCL_NET=Libfabric   # makes it fail early instead of falling back (until plugin 1.12: 'AWS Libfabric')",
        ],
        confidence="certain" if expected and tried else "likely",
        ranks=ends(paths),
        hosts=hosts_of(paths),
        evidence=[*first_lines(paths)[:2], *hints[:3]],
    )


def _cause(facts: Facts, tried: bool, provider: bool) -> str:
    if providers := [s.value for s in facts.settings("FI_PROVIDER") if "efa" not in s.value]:
        return f"FI_PROVIDER={providers[0]} keeps libfabric from EFA"
    if provider:
        return (
            "libfabric runs over its tcp provider, as it found none for EFA: no EFA is used, whatever the word "
            "Libfabric suggests"
        )
    if tried:
        return "aws-ofi-nccl was tried and did not come up; NCCL fell back to TCP"
    if plugins_off(facts):
        return "NCCL_NET_PLUGIN=none keeps aws-ofi-nccl out"
    if sought_plugin(facts):
        return "aws-ofi-nccl was not loaded: NCCL did not find its file in the image or on LD_LIBRARY_PATH"
    return "aws-ofi-nccl was not loaded: the pod asked for no vpc.amazonaws.com/efa, or the plugin is not in the image"
