"""The pods of a job, their logs, owners, events and nodes, through ``kubectl``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from nccl_inspect.collecting.commands import Command
from nccl_inspect.errors import NcclInspectError

if TYPE_CHECKING:
    from nccl_inspect.collecting import Wanted
    from nccl_inspect.collecting.collection import Collection

ARGUMENT = "SELECTOR"
HELP = "pods by label (job-name=llama), or KIND/NAME of what made them: job/llama, pytorchjob/llama, pod/llama-0"
PODS = Command("pods.json", ("kubectl", "get", "pods", "--selector={selector}", "--output=json"))
POD = Command("pods.json", ("kubectl", "get", "pods", "{selector}", "--output=json"))
_CURRENT = ("kubectl", "logs", "{pod}", "--container={container}", "--tail=-1", "--timestamps")
LOG = Command("logs/{pod}/{container}.log", _CURRENT, is_log=True)
PREVIOUS = Command("logs/{pod}/{container}.previous.log", (*_CURRENT, "--previous"), is_log=True)
OWNER = Command("owners/{kind}-{name}.json", ("kubectl", "get", "{kind}", "{name}", "--output=json"))
EVENTS = Command("events", ("kubectl", "get", "events", "--sort-by=.lastTimestamp", "--output=wide"))
NODE = Command("nodes/{node}", ("kubectl", "describe", "node", "{node}"))
LABELS = {
    "job": "job-name",
    "jobset": "jobset.sigs.k8s.io/jobset-name",
    "leaderworkerset": "leaderworkerset.sigs.k8s.io/name",
    "mpijob": "training.kubeflow.org/job-name",
    "pytorchjob": "training.kubeflow.org/job-name",
    "raycluster": "ray.io/cluster",
    "trainjob": "jobset.sigs.k8s.io/jobset-name",
    "vcjob": "volcano.sh/job-name",
}
"""The label by which the pods of each kind are found."""
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
_MAX_OWNERS = 100
_UNKNOWN_POD: dict[str, Any] = {
    "metadata": {"name": "POD", "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "OWNER"}]},
    "spec": {"nodeName": "NODE", "containers": [{"name": "CONTAINER"}]},
    "status": {"containerStatuses": [{"name": "CONTAINER", "restartCount": 1}]},
}
"""Stands for the pods where nothing is run."""


def collect(collection: Collection, wanted: Wanted) -> None:
    """Gather the files.

    Raises:
        NcclInspectError: there is no such pod.
    """
    base = _pods_command(wanted.argument)
    data = collection.run(_within(base, wanted.namespace))
    pods = [_UNKNOWN_POD] if collection.is_dry else list(_pods(data))
    if not pods:
        for entry in collection.outcomes:
            if entry.problem:
                raise NcclInspectError(f"kubectl: {entry.problem}", "check that 'kubectl get pods' works here")
        raise NcclInspectError(f"no pod matches {wanted.argument}", "check selector and namespace (-n)")
    collection.run_all(_within(command, wanted.namespace) for pod in pods for command in _logs(pod))
    _collect_owners(collection, pods, wanted.namespace)
    collection.run(_within(EVENTS, wanted.namespace))
    nodes = dict.fromkeys(str(pod.get("spec", {}).get("nodeName") or "") for pod in pods)
    collection.run_all(NODE.filled(node=node) for node in nodes if collection.is_dry or _NAME.fullmatch(node))
    collection.write_index()


def _pods_command(selector: str) -> Command:
    kind, slash, name = selector.partition("/")
    if not slash or "=" in selector:
        is_name = _NAME.fullmatch(selector) is not None
        return (POD if is_name else PODS).filled(selector=selector)
    if kind in ("pod", "pods", "po"):
        return POD.filled(selector=name)
    singular = kind.lower().partition(".")[0]
    label = LABELS.get(singular) or LABELS.get(singular.removesuffix("s"))
    if label is None:
        known = ", ".join(LABELS)
        raise NcclInspectError(f"{selector}: how pods of a {kind} are found is not known", f"known are {known}, pod")
    return PODS.filled(selector=f"{label}={name}")


def _within(command: Command, namespace: str) -> Command:
    """The command in a namespace; without one, in that of the present context."""
    return replace(command, argv=(*command.argv, f"--namespace={namespace}")) if namespace else command


def _pods(data: bytes) -> Iterator[dict[str, Any]]:
    """The pods of a list, or the one that was asked for."""
    try:
        document = json.loads(data or b"{}")
    except ValueError:
        return
    for item in document.get("items", [document]) if isinstance(document, dict) else ():
        if isinstance(item, dict) and _NAME.fullmatch(str(item.get("metadata", {}).get("name", ""))):
            yield item


def _logs(pod: dict[str, Any]) -> Iterator[Command]:
    """The logs of all containers, and of those that were restarted also what they printed before."""
    spec, status = pod.get("spec", {}), pod.get("status", {})
    name = pod["metadata"]["name"]
    restarted = {
        entry.get("name")
        for key in ("initContainerStatuses", "containerStatuses")
        for entry in status.get(key) or ()
        if entry.get("restartCount")
    }
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        yield LOG.filled(pod=name, container=container["name"])
        if container["name"] in restarted:
            yield PREVIOUS.filled(pod=name, container=container["name"])


def _collect_owners(collection: Collection, pods: Iterable[dict[str, Any]], namespace: str) -> None:
    """What made the pods, and what made that."""
    waiting = dict.fromkeys(owner for pod in pods for owner in _owners(pod))
    seen = set(waiting)
    for _ in range(_MAX_OWNERS):
        if not waiting:
            return
        kind, name = owner = next(iter(waiting))
        del waiting[owner]
        data = collection.run(_within(OWNER.filled(kind=kind, name=name), namespace))
        above = [entry for found in islice(_pods(data), 1) for entry in _owners(found) if entry not in seen]
        waiting.update(dict.fromkeys(above))
        seen.update(above)


def _owners(item: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Kind and name of what made an object: ``PyTorchJob.v1.kubeflow.org``, ``llama``."""
    for owner in item.get("metadata", {}).get("ownerReferences") or ():
        group, slash, version = str(owner.get("apiVersion", "")).rpartition("/")
        kind, name = str(owner.get("kind", "")), str(owner.get("name", ""))
        full = f"{kind}.{version}.{group}" if slash else kind
        if re.fullmatch(r"[A-Za-z][\w.-]*", full) and (_NAME.fullmatch(name) or name == "OWNER"):
            yield full, name
