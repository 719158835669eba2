"""The pod has neither its node's network nor additional ones, and the job needs interfaces of the node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import EFA, Case, Change, requests_device
from nccl_inspect.judging.networks.google_plugins import NETWORKS_IN_POD
from nccl_inspect.platforms import networks
from nccl_inspect.util.records import Frozen, frozen

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Container, Pod
from nccl_inspect.judging.engine import Facts, Finding, Layer, Results, Rule
from nccl_inspect.util.patterns import later

_EFFECTS = ("not-reached", "not-named", "no-google-interface")
"""Kinds of effects that are weighed each in its own way."""
RULE = Rule(
    name="host-network-missing",
    category="network",
    layer=Layer.SETTING,
    title="The manifest gives the pod neither its node's network nor additional ones",
    may_cause=("wait", "loss", "call", "stage", "resource", "no-ib", "no-network", "no-interface", *_EFFECTS),
    nest_under_effect=True,
)
_OF_NODE = later(r"=\^?=?(?:ens|enp|eno|enP|bond|ib|hsn|mlx|rdma|gpu\d|eth[1-9])")
"""Names of machine interfaces; a pod has eth0."""
_DOCKER = "--network=host   # docker run option, on all hosts"
_DNS = "dnsPolicy: ClusterFirstWithHostNet   # with hostNetwork, so that service names still resolve"


@frozen
class _Namespace(Frozen):
    """A network namespace that is not the one of the machine, in words."""

    network: str
    missing: str
    line: str
    """What the manifest or container shows of it."""


_OF_CONTAINER = _Namespace("only the Docker bridge", "other hosts cannot reach its address", "NetworkMode: bridge")
_OF_POD = _Namespace(
    "no hostNetwork and no additional network",
    "the interfaces of the node, and the addresses (GIDs) of its RDMA cards, are not in it",
    "no hostNetwork, no annotation for networks",
)


def explain(facts: Facts, effects: Sequence[Finding]) -> Results:
    """Judge interfaces and requested RoCE cards that are not in the network namespace of a pod."""
    shown = workloads.faults(RULE, effects)
    cases = workloads.cases(facts, _has_own_network) if shown else []
    shown = [effect for effect in workloads.effects_on(facts, cases, shown) if _is_due(facts, effect, cases)]
    if not cases or not shown:
        return
    namespace = _OF_CONTAINER if _is_docker(cases[0]) else _OF_POD
    yield workloads.finding_of(
        RULE,
        facts,
        cases,
        shown,
        f"{workloads.names_of(cases)} {workloads.verb(cases, 'has', 'have')} {namespace.network}",
        cause=f"it has its own network namespace with one virtual interface: {namespace.missing}",
        fix=list(_fix(cases, shown)),
        evidence=[case.line(namespace.line, case.pod.line) for case in cases],
        confidence="certain" if any(_is_sure(effect, cases) for effect in shown) else "likely",
    )


def _is_docker(case: Case) -> bool:
    return case.pod.kind == "container"


def _has_own_network(pod: Pod, _: Container) -> bool:
    return pod.is_whole and not pod.host_network and not pod.networks


def _is_due(facts: Facts, effect: Finding, cases: list[Case]) -> bool:
    """Whether the network of the node has what is missing."""
    if workloads.shows(effect, "not-reached"):  # pods reach each other; containers behind bridges of hosts do not
        return any(map(_is_docker, cases))
    is_unknown = workloads.shows(effect, "no-efa") and workloads.shows(effect, "no-ib")
    if workloads.shows(effect, "no-google-interface") or (is_unknown and _is_google(facts, cases)):
        return True
    if not workloads.shows(effect, "not-named"):
        return _has_cards(cases)
    # EFA does not need interfaces of the node: only the name of one shows that they were expected.
    has_efa = any(case.container.asks(EFA) for case in cases)
    return not has_efa or _OF_NODE.search(effect.summary) is not None


def _is_google(facts: Facts, cases: list[Case]) -> bool:
    """Whether the network of the machine consists of additional interfaces of the node."""
    machines = (workloads.machine(facts, case.pod) for case in cases)
    return any(networks.named(machine.network).vendor == "GCP" for machine in machines if machine)


def _has_cards(cases: list[Case]) -> bool:
    """Whether the containers request cards of the node with addresses there; EFA has none."""
    if any(case.container.asks(EFA) for case in cases):
        return False
    return any(case.container.privileged or requests_device(case.container) for case in cases)


def _is_sure(effect: Finding, cases: list[Case]) -> bool:
    """Whether the missing interface is one of the node, by its name or by the requested cards."""
    return not workloads.shows(effect, "not-named") or _has_cards(cases) or _OF_NODE.search(effect.summary) is not None


def _fix(cases: list[Case], shown: list[Finding]) -> Iterator[str]:
    if _is_docker(cases[0]):
        yield _DOCKER
        return
    yield from workloads.patches(cases, lambda _: [Change(("hostNetwork",), True, of_pod=True)])
    yield _DNS
    if any(workloads.shows(effect, "no-google-interface") for effect in shown):
        yield NETWORKS_IN_POD
    else:
        yield "k8s.v1.cni.cncf.io/networks: <network>   # or, with Multus and SR-IOV, an annotation of the template"
