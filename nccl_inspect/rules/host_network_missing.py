"""The pod has neither the network of its node nor further ones, and the job needs interfaces of the node."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import EFA, Case, Change, asks_for_device
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.networks.google_plugins import NETWORKS_IN_POD
from nccl_inspect.model.finding import Finding, NotJudged

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Container, Pod

RULE = Rule(
    name="host-network-missing",
    category="network",
    severity="error",
    title="The manifest gives the pod neither the network of its node nor further ones",
    explains=(
        "socket-instead-of-ib",
        "socket-instead-of-rdma",
        "network-not-found",
        "ib-gid-index",
        "bootstrap-no-interface",
        "bootstrap-no-route",
        "bootstrap-wrong-interface",
        "tcpxo-no-interface",
        "tcpx-timeout",
    ),
    folds=True,
)
_BRIDGED = ("bootstrap-no-route", "bootstrap-wrong-interface")
"""Pods reach each other, containers behind bridges of docker on several hosts do not."""
_GOOGLE = ("tcpxo-no-interface", "tcpx-timeout")
_NETWORKS_OF_GOOGLE = ("tcpx", "tcpxo")
_UNKNOWN = "socket-instead-of-rdma"
_INTERFACE = "bootstrap-no-interface"
_OF_NODE = re.compile(r"=\^?=?(?:ens|enp|eno|enP|bond|ib|hsn|mlx|rdma|gpu\d|eth[1-9])")
"""How interfaces of machines are called: that of a pod is eth0."""
_DOCKER = "--network=host   # option of docker run, on all hosts"
_DNS = "dnsPolicy: ClusterFirstWithHostNet   # beside hostNetwork, so that names of services are still found"


def judge(facts: Facts, effects: Sequence[Finding]) -> Iterator[Finding | NotJudged]:
    """Judge interfaces, and RoCE cards that were asked for, which the namespace of a pod does not have."""
    shown = workloads.faults(effects)
    found = workloads.cases(facts, _has_own_network) if shown else []
    shown = [effect for effect in workloads.touched(facts, found, shown) if _is_due(facts, effect, found)]
    if not found or not shown:
        return
    case = found[0]
    is_docker = case.pod.kind == "container"
    yield workloads.explained(
        RULE,
        facts,
        found,
        shown,
        f"{workloads.called(found)} {workloads.verb(found, 'has', 'have')} "
        + ("the bridge of docker" if is_docker else "no hostNetwork and no further network"),
        cause="it has a network namespace of its own with one virtual interface: "
        + (
            "other hosts do not reach its address"
            if is_docker
            else "interfaces of the node, and addresses (GIDs) of its RDMA cards, are not in it"
        ),
        fix=list(_fix(found, shown)),
        evidence=[
            one.line("NetworkMode: bridge" if is_docker else "no hostNetwork, no annotation for networks", one.pod.line)
            for one in found
        ],
        confidence="certain" if any(_is_sure(effect, found) for effect in shown) else "likely",
    )


def _has_own_network(pod: Pod, _: Container) -> bool:
    return pod.is_whole and not pod.host_network and not pod.networks


def _is_due(facts: Facts, effect: Finding, found: list[Case]) -> bool:
    """Whether what is missing is in the network of the node."""
    if effect.rule in _BRIDGED:
        return any(case.pod.kind == "container" for case in found)
    if effect.rule in _GOOGLE or (effect.rule == _UNKNOWN and _is_google(facts, found)):
        return True
    if effect.rule != _INTERFACE:
        return _has_cards(found)
    # EFA does without interfaces of the node: only the name of one shows that they were meant to be there.
    has_efa = any(case.container.asks(EFA) for case in found)
    return not has_efa or _OF_NODE.search(effect.summary) is not None


def _is_google(facts: Facts, found: list[Case]) -> bool:
    """Whether the machine is one whose network are further interfaces of the node."""
    machines = (workloads.machine(facts, case.pod) for case in found)
    return any(machine.network in _NETWORKS_OF_GOOGLE for machine in machines if machine)


def _has_cards(found: list[Case]) -> bool:
    """Whether the containers were to have cards of the node that have addresses there: EFA has none."""
    if any(case.container.asks(EFA) for case in found):
        return False
    return any(case.container.privileged or asks_for_device(case.container) for case in found)


def _is_sure(effect: Finding, found: list[Case]) -> bool:
    """Whether the interface that is not there is one of the node, by its name or by the cards that were asked for."""
    return effect.rule != _INTERFACE or _has_cards(found) or _OF_NODE.search(effect.summary) is not None


def _fix(found: list[Case], shown: list[Finding]) -> Iterator[str]:
    if found[0].pod.kind == "container":
        yield _DOCKER
        return
    yield from workloads.patches(found, lambda _: [Change(("hostNetwork",), True, of_pod=True)])
    yield _DNS
    if any(effect.rule in _GOOGLE for effect in shown):
        yield NETWORKS_IN_POD
    else:
        yield "k8s.v1.cni.cncf.io/networks: <network>   # or, with Multus and SR-IOV, an annotation of the template"
