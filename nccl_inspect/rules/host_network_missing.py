"""The pod has neither its node's network nor additional ones, and the job needs interfaces of the node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_inspect import platforms
from nccl_inspect.judging.engine import Facts, Finding
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import EFA, Case, Change, requests_device, shows
from nccl_inspect.judging.networks.google_plugins import NETWORKS_IN_POD
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.patterns import later

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Container, Pod

_OF_NODE = later(r"=\^?=?(?:ens|enp|eno|enP|bond|ib|hsn|mlx|rdma|gpu\d|eth[1-9])")
"""Names of machine interfaces; a pod has eth0."""


def find(facts: Facts, findings: Sequence[Finding]) -> Iterator[Hit]:
    """Find interfaces and requested RoCE cards that are not in the network namespace of a pod."""
    faults = workloads.faults("host-network-missing", findings)
    cases = workloads.cases(facts, _has_own_network) if faults else []
    shown = [effect for effect in workloads.effects_on(facts, cases, faults) if _is_due(facts, effect, cases)]
    if not cases or not shown:
        return
    docker, change = cases[0].pod.kind == "container", Change(("hostNetwork",), True, of_pod=True)
    on_google = not docker and any(shows(effect, "no-google-interface") for effect in shown)
    named = {
        "pods": workloads.names_of(cases),
        "one": workloads.are_one_pod(cases),
        "docker": docker,
        "google": NETWORKS_IN_POD if on_google else "",
        "steps": [] if docker else list(workloads.patches(cases, lambda _: [change])),
        "sure": any(not shows(one, "not-named") or _has_cards(cases) or _names_interface(one) for one in shown),
    }
    line = "NetworkMode: bridge" if docker else "no hostNetwork, no annotation for networks"
    yield Hit([], named, evidence=[case.line(line, case.pod.line) for case in cases], effects=shown, cases=cases)


def _has_own_network(pod: Pod, _: Container) -> bool:
    return pod.is_whole and not pod.host_network and not pod.networks


def _is_due(facts: Facts, effect: Finding, cases: list[Case]) -> bool:
    """Whether the network of the node has what is missing."""
    if shows(effect, "not-reached"):  # pods reach each other; containers behind bridges of hosts do not
        return any(case.pod.kind == "container" for case in cases)
    is_unknown = shows(effect, "no-efa") and shows(effect, "no-ib")
    if shows(effect, "no-google-interface") or (is_unknown and _is_google(facts, cases)):
        return True
    if not shows(effect, "not-named"):
        return _has_cards(cases)
    # EFA does not need interfaces of the node: only the name of one shows that they were expected.
    return not any(case.container.asks(EFA) for case in cases) or _names_interface(effect)


def _names_interface(effect: Finding) -> bool:
    return _OF_NODE.search(effect.summary) is not None


def _is_google(facts: Facts, cases: list[Case]) -> bool:
    """Whether the network of the machine consists of additional interfaces of the node."""
    machines = (workloads.machine(facts, case.pod) for case in cases)
    return any(platforms.find_network(machine.network).vendor == "GCP" for machine in machines if machine)


def _has_cards(cases: list[Case]) -> bool:
    """Whether the containers request cards of the node with addresses there; EFA has none."""
    if any(case.container.asks(EFA) for case in cases):
        return False
    return any(case.container.privileged or requests_device(case.container) for case in cases)
