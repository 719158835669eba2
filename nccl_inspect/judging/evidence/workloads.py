"""Pods and containers in files beside the log, joined to the hosts of the log and the findings that they explain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from nccl_inspect import platforms
from nccl_inspect.judging.engine import SEVERITIES, rules_by_name
from nccl_inspect.judging.facts import Facts, once
from nccl_inspect.judging.impact import Estimate
from nccl_inspect.judging.remedies import COMMENT
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.inventory import contents_of
from nccl_inspect.platforms import Platform
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.wording import count, list_words

if TYPE_CHECKING:
    from nccl_inspect.artifacts import located
    from nccl_inspect.artifacts.containers import Container, Place, Pod
    from nccl_inspect.judging.check import Hit

MERGED = ("Deployment", "StatefulSet", "DaemonSet")
"""Kinds with an editable template, whose lists ``kubectl patch`` merges by name."""
_LABEL = 63  # the maximum length of a host name


class Case(NamedTuple):
    """A container with a fault."""

    pod: Pod
    container: Container

    @property
    def is_docker(self) -> bool:
        """Return whether it is a container of Docker, which no manifest describes."""
        return self.pod.kind == "container"

    def line(self, text: str, line: int = 0) -> Evidence:
        """Return a line of evidence: that line, or by default the one where the container is defined."""
        where = f"{self.container.path} ({self.container.name})" if self.container.name else self.container.path
        return Evidence(self.pod.file, line or self.container.line or 1, f"{where}: {text}")


class Change(Frozen):
    """A change of a pod's spec."""

    keys: tuple[str, ...]  # the path below the container or the pod's spec; a sequence gets another element
    value: Any
    of_pod: bool = False


def pods(facts: Facts) -> list[Pod]:
    """Return the pods of this job: if some match hosts of the log, those and their siblings; else all."""
    kept = related_pods(facts)
    with_gpus = [pod for pod in kept if any(container.has_gpus for container in pod.containers)]
    return with_gpus or kept


@once
def related_pods(facts: Facts) -> list[Pod]:
    """Like :func:`pods`, including pods without a GPU such as launchers."""
    files = contents_of(facts.job.artifacts, "manifest", "docker_inspect")
    everything = [pod for file in files for pod in file.pods]
    if any(pod.runtime for pod in everything):
        from nccl_inspect.artifacts import containers  # few jobs have one

        everything = containers.join_pods(everything)
    joined = [pod for pod in everything if hosts(facts, pod)]
    owners = {pod.owner for pod in joined if pod.owner}
    joined_ids = set(map(id, joined))
    return [pod for pod in everything if id(pod) in joined_ids or pod.owner in owners] if joined else everything


def hosts(facts: Facts, pod: Pod) -> list[str]:
    """Return the hosts of the log that are this pod, or were created from this template."""
    names = _names(facts)
    if pod.is_template:
        wanted = [name for name in names if name.startswith(f"{pod.name}-")] if pod.name else []
    else:
        wanted = [_short(name) for name in pod.hosts]
    return list(dict.fromkeys(host for name in wanted for host in names.get(name, ())))


@once
def _names(facts: Facts) -> dict[str, list[str]]:
    """Return the hosts of the log by their own names and by those that the log collector gives them."""
    by_name = group_values((_short(host.name), host.name) for host in facts.job.hosts)
    for last in facts.job.last_lines:
        for part in filter(None, last.process.apart.split("/")):
            by_name.setdefault(_short(part), []).append(last.process.host)
    return by_name


def _short(name: str) -> str:
    return name.partition(".")[0][:_LABEL]


def nodes(facts: Facts) -> dict[str, str]:
    """Return the node of each host of the log; empty unless all hosts are pods with a known node."""
    by_host = {
        host: pod.node or pod.address for pod in pods(facts) for host in hosts(facts, pod) if not pod.is_template
    }
    return by_host if all(by_host.values()) and set(by_host) >= set(facts.hosts()) else {}


def node(facts: Facts, case: Case) -> str:
    """Return the node of a pod as an argument of kubectl: by its name, else by a command that finds it."""
    if case.pod.node:
        return case.pod.node
    name = next(iter(hosts(facts, case.pod)), "")
    own = namespace_option(case.pod.namespace)
    return f"$(kubectl {own}get pod {name} -o jsonpath='{{.spec.nodeName}}')" if name else "<node>"


def machine(facts: Facts, pod: Pod) -> Platform | None:
    """Return the machine type: that of the log, else the one that the pod requests."""
    return facts.platform or (platforms.find(pod.machine) if pod.machine else None)


def faults(rule: str, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that a file beside the log may explain: those that a rule may cause, of infos only ends."""
    own = rules_by_name()[rule]
    caused = [found for found in findings if own.causes(rules_by_name()[found.rule])]
    return [found for found in caused if found.severity != "info" or shows(found, "ended")]


def shows(finding: Finding, *kinds: str) -> bool:
    """Return whether a finding is an effect of one of these kinds."""
    return not set(kinds).isdisjoint(rules_by_name()[finding.rule].shows)


def match(
    facts: Facts, effects: list[Finding], lacks: Callable[[Pod, Container], bool]
) -> tuple[list[Case], list[Finding]]:
    """Return the containers of ranks that lack something, and the effects on their hosts, or all if names differ."""
    cases = [Case(pod, one) for pod in pods(facts) for one in pod.workers if lacks(pod, one)] if effects else []
    where = {host for case in cases for host in hosts(facts, case.pod)}
    near = [effect for effect in effects if not effect.hosts or not where or where.intersection(effect.hosts)]
    return cases, near if cases else []


def describe_effects(facts: Facts, hit: Hit, confirm: str) -> dict[str, Any]:
    """Return what a finding from files beside the log is, by the findings that it explains.

    It is at most likely if the log only suggests these effects, and about those of their ranks that are on hosts of the
    containers with the fault, if it names none.
    """
    shown = hit.effects
    where = {host for case in hit.cases for host in hosts(facts, case.pod)}
    of_hosts = {rank for host in facts.job.hosts if host.name in where for rank in host.ranks}
    affected = {rank for effect in shown for rank in effect.ranks}
    is_clue = all(effect.clue for effect in shown)
    return {
        "impact": Estimate(
            f"explains {list_words(effect.rule for effect in shown)}: {shown[0].impact}", tuple(shown[0].references)
        ),
        "confirm": (confirm or shown[0].confirm) if is_clue else "",
        "severity": max((effect.severity for effect in shown), key=SEVERITIES.index),
        **({"confidence": "likely"} if is_clue else {}),
        "ranks": hit.ranks or affected & of_hosts or of_hosts or affected,
        "hosts": where or {host for effect in shown for host in effect.hosts},
        "fatal": not is_clue and any(effect.fatal for effect in shown),
    }


def patches(cases: Sequence[Case], changes: Callable[[Case], Sequence[Change]]) -> Iterator[str]:
    """Yield the steps for each template with a fault: a job may have one for its first pod and one for the rest."""
    templates: dict[tuple[object, ...], Case] = {}
    for case in cases:
        pod = case.pod
        own = (pod.owner,) if pod.kind == "Pod" else (pod.file, pod.line, pod.path, case.container.path)
        templates.setdefault(own, case)
    for case in templates.values():
        yield from steps(case, *changes(case))


def steps(case: Case, *changes: Change) -> Iterator[str]:
    """Code to paste into the manifest, each piece with the place where it belongs."""
    from nccl_inspect.artifacts import located  # only needed to change a manifest

    pod, parts = case.pod, [part for whole in changes for part in _both(case, whole)]
    for change in parts:
        place = _base(case, change)
        if place is None:  # only the runtime of a TrainJob can have it
            (piece,) = _pieces(located.ABSENT, change.keys, change.value)
            name = f" {pod.runtime}" if pod.runtime else ""
            what = "the spec of the pods" if change.of_pod else f"the container {case.container.name}"
            where = f"in the training runtime{name} (kubectl get clustertrainingruntime{name} -o yaml)"
            yield f"{piece}{COMMENT}under {what} {where}: a TrainJob has no such key"
            continue
        keys = (place.names.get(change.keys[0], change.keys[0]), *change.keys[1:])
        node, under, missing = located.slot(place.tree, place.path, keys)
        for piece in _pieces(node, missing, change.value):
            there = node.entries.get(piece.partition(": ")[0])
            if pod.kind == "Pod":
                owner = f" of {pod.owner}" if pod.owner else ""
                where = f"under {under}, in the template{owner}: running pods cannot be changed"
                instead = ", in its place"
            else:
                indent = "" if node.is_flow else f", indented by {count(node.column, 'space')}"
                where = f"{place.file.rpartition('/')[2]}:{node.line}, under {under}{indent}"
                instead = f", in place of line {there.line}" if there else ""
            yield f"{piece}{COMMENT}{where}{instead if there is not None else ''}"
    if pod.kind in MERGED and changes:
        yield _command(case, parts)


def _both(case: Case, change: Change) -> Iterator[Change]:
    """Yield a change of limits, with one of the requests that exist: for devices both must be equal."""
    yield change
    if change.of_pod or change.keys != ("resources", "limits"):
        return
    place = _base(case, change)
    name = place.names.get("resources", "resources") if place else ""
    written = place.tree.at(name, "requests").entries if place else {}
    both = {key: value for key, value in change.value.items() if key in written and key != "memory"}
    if both:
        yield Change(("resources", "requests"), both)


def _base(case: Case, change: Change) -> Place | None:
    """Return the place for the change; None if it is in a file that is missing from the input."""
    from nccl_inspect.artifacts.containers import Place

    pod, container = case
    if not change.of_pod and container.elsewhere and change.keys[0] in container.elsewhere.names:
        return container.elsewhere
    base, path = (pod.tree, pod.path) if change.of_pod else (container.tree, container.path)
    return Place(pod.file, path, base, {}) if base else None


def _pieces(node: located.Node, missing: Sequence[str], value: Any) -> list[str]:
    """Return the missing keys with the value; additional elements of a sequence or keys of a mapping, one by one."""
    if missing:
        for key in reversed(missing[1:]):
            value = {key: value}
        return [f"{missing[0]}: {flow(value)}"]
    if node.kind == "sequence":
        return [f"- {flow(element)}" for element in value]
    return [f"{key}: {flow(entry)}" for key, entry in value.items()]


def _command(case: Case, changes: Sequence[Change]) -> str:
    pod, container = case
    spec: dict[str, Any] = {}
    own: dict[str, Any] = {"name": container.name}
    for change in changes:
        part = spec if change.of_pod else own
        for key in change.keys[:-1]:
            part = part.setdefault(key, {})
        base = pod.tree if change.of_pod else container.tree
        there = base.words(*change.keys) if isinstance(change.value, list) else []
        part[change.keys[-1]] = [*there, *change.value] if there else change.value
    if len(own) > 1:
        spec["containers"] = [own]
    import json  # few logs have such files beside them

    patch = json.dumps({"spec": {"template": {"spec": spec}}}, separators=(",", ":"))
    return f"kubectl {namespace_option(pod.namespace)}patch {pod.kind.lower()} {pod.name} -p '{patch}'"


def namespace_option(name: str) -> str:
    """Return the option of kubectl for a namespace."""
    return f"-n {name} " if name else ""


def flow(value: Any) -> str:
    """Return a value in YAML's flow style."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


EFA = "vpc.amazonaws.com/efa"
_HARMLESS = ("cpu", "memory", "ephemeral-storage", "pods")
_HARMLESS_PREFIXES = ("hugepages-", "nvidia.com/", "amd.com/gpu")
IN_CONTAINER = "/dev/infiniband"


def requests_device(container: Container) -> bool:
    """Return whether a resource of a container may be a NIC: every unknown one counts."""
    return any(
        name not in _HARMLESS and not name.startswith(_HARMLESS_PREFIXES) and not name.endswith("/gpu")
        for name in container.resources
    ) or any(device.startswith(IN_CONTAINER) for device in container.devices)
