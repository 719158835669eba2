"""The pods of a job, their logs, owners, events and nodes, through ``kubectl``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras.collect.collection import TABLES, Collection, Command, Wanted, load_commands

ARGUMENT = "SELECTOR"
HELP = "pods by label (job-name=llama), or [KIND/]NAME of what made them: llama, pytorchjob/llama, pod/llama-0"
COMMANDS = load_commands("kubernetes")
LABELS: dict[str, str] = TABLES["labels"]
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
_NOT_FOUND = "(NotFound)"  # how kubectl says that there is no object of a name
_MAX_OWNERS = 100
_UNKNOWN_POD: dict[str, Any] = {  # stands for the pods where nothing is run
    "metadata": {"name": "POD", "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "OWNER"}]},
    "spec": {"nodeName": "NODE", "containers": [{"name": "CONTAINER"}]},
    "status": {"containerStatuses": [{"name": "CONTAINER", "restartCount": 1}]},
}


def collect(collection: Collection, wanted: Wanted) -> None:
    """Gather the files."""
    # The most likely way to find the pods comes first; a name alone is of a pod or of what made pods.
    selector, pods = wanted.argument, list[dict[str, Any]]()
    kind, slash, name = selector.partition("/")
    if _NAME.fullmatch(selector):
        by_label = [COMMANDS["pods"].fill(selector=f"{label}={selector}") for label in dict.fromkeys(LABELS.values())]
        lookups = [COMMANDS["pod"].fill(selector=selector), *by_label]
    elif not slash or "=" in selector:
        lookups = [COMMANDS["pods"].fill(selector=selector)]
    elif kind in ("pod", "pods", "po"):
        lookups = [COMMANDS["pod"].fill(selector=name)]
    else:
        singular = kind.lower().partition(".")[0]
        label = LABELS.get(singular) or LABELS.get(singular.removesuffix("s"))
        if label is None:
            hint = f"known are {', '.join(LABELS)}, pod"
            raise NcclInspectError(f"{selector}: how pods of a {kind} are found is not known", hint)
        lookups = [COMMANDS["pods"].fill(selector=f"{label}={name}")]
    for command in lookups:  # until one gives some
        data = collection.run(_add_context(command, wanted))
        pods = [_UNKNOWN_POD] if collection.is_dry else list(_pods(data))
        if pods:
            tried = collection.outcomes  # what failed before is forgotten
            collection.outcomes = [entry for entry in tried if entry.file != command.file or not entry.problem]
            break
        for entry in collection.outcomes:
            if entry.problem and _NOT_FOUND not in entry.problem:
                raise NcclInspectError(f"kubectl: {entry.problem}", "check that 'kubectl get pods' works here")
    if not pods:
        here = f"namespace {wanted.namespace}" if wanted.namespace else "the namespace of the context"
        raise NcclInspectError(f"no pod matches {wanted.argument} in {here}", "check the name and the namespace (-n)")
    collection.run_all(_add_context(command, wanted) for pod in pods for command in _logs(pod))
    owners = list(dict.fromkeys(owner for pod in pods for owner in _owners(pod)))
    for kind, name in islice(owners, _MAX_OWNERS):  # grows by what made those
        data = collection.run(_add_context(COMMANDS["owner"].fill(kind=kind, name=name), wanted))
        above = (entry for document in islice(_pods(data), 1) for entry in _owners(document))
        owners += [entry for entry in dict.fromkeys(above) if entry not in owners]
    collection.run(_add_context(COMMANDS["events"], wanted))
    nodes = dict.fromkeys(str(pod.get("spec", {}).get("nodeName") or "") for pod in pods)
    named = (node for node in nodes if collection.is_dry or _NAME.fullmatch(node))
    collection.run_all(_add_context(COMMANDS["node"].fill(node=node), replace(wanted, namespace="")) for node in named)
    collection.write_index()


def _add_context(command: Command, wanted: Wanted) -> Command:
    places = (("namespace", wanted.namespace), ("context", wanted.context))
    return replace(command, argv=(*command.argv, *(f"--{name}={place}" for name, place in places if place)))


def _pods(data: bytes) -> Iterator[dict[str, Any]]:
    try:
        document = json.loads(data or b"{}")
    except ValueError:
        return
    for item in document.get("items", [document]) if isinstance(document, dict) else ():
        if isinstance(item, dict) and _NAME.fullmatch(str(item.get("metadata", {}).get("name", ""))):
            yield item


def _logs(pod: dict[str, Any]) -> Iterator[Command]:
    """Return the logs of all containers, and of those that were restarted also what they printed before."""
    spec, status = pod.get("spec", {}), pod.get("status", {})
    name = pod["metadata"]["name"]
    restarted = {
        entry.get("name")
        for key in ("initContainerStatuses", "containerStatuses")
        for entry in status.get(key) or ()
        if entry.get("restartCount")
    }
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        yield COMMANDS["log"].fill(pod=name, container=container["name"])
        if container["name"] in restarted:
            yield COMMANDS["previous"].fill(pod=name, container=container["name"])


def _owners(item: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Return kind and name of what made an object: ``PyTorchJob.v1.kubeflow.org``, ``llama``."""
    for owner in item.get("metadata", {}).get("ownerReferences") or ():
        group, slash, version = str(owner.get("apiVersion", "")).rpartition("/")
        kind, name = str(owner.get("kind", "")), str(owner.get("name", ""))
        full = f"{kind}.{version}.{group}" if slash else kind
        if re.fullmatch(r"[A-Za-z][\w.-]*", full) and (_NAME.fullmatch(name) or name == "OWNER"):
            yield full, name
