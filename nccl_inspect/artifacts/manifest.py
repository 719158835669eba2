"""Kubernetes manifests: what ``kubectl get pod -o yaml`` (or ``-o json``) says, and what was written by hand.

Pods are found by their shape, a ``spec`` with ``containers``, so that any kind that makes pods is understood.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from nccl_inspect.artifacts import located
from nccl_inspect.artifacts.containers import DEFAULT_SHM, Container, Ended, Place, Pod, quantity, variables
from nccl_inspect.artifacts.identity import Identity, short
from nccl_inspect.artifacts.located import ABSENT, Node
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import Record, record

KIND = "Kubernetes manifest"
FORM = "yaml"
_JSON = re.compile(rb'\s*\{\s*"(?:apiVersion|kind|items|metadata)"\s*:')
_YAML_LINE = re.compile(rb"(?:[A-Za-z_][\w.$/-]*:(?:[ \t].*)?|- .*|-|---(?: .*)?|\.\.\.|%YAML.*|[ \t#].*|)\r?$")
_KEYS = (re.compile(rb"^apiVersion:[ \t]", re.MULTILINE), re.compile(rb"^kind:[ \t]", re.MULTILINE))
_NCCL = re.compile(rb"\bNCCL (?:INFO|WARN|TRACE) ")
_NETWORKS = ("k8s.v1.cni.cncf.io/networks", "networking.gke.io/interfaces", "v1.multus-cni.io/default-network")
_MACHINE = "node.kubernetes.io/instance-type"
_JOB = "TrainJob"
_RUNTIMES = ("ClusterTrainingRuntime", "TrainingRuntime")
_PARTIAL = (_JOB, *_RUNTIMES)
_TRAINED = ("node", "trainer")  # what runtimes call the container that the trainer of a TrainJob replaces
_OVERRIDES = ("podSpecOverrides", "podTemplateOverrides", "runtimePatches")
"""Where a TrainJob may add anything to its pods."""
_OF_TRAINER = {"resources": "resourcesPerNode"}
"""Keys of a container that the trainer of a TrainJob has, too, and what they are called there."""
_KEPT = ("resources", "resourcesPerNode", "securityContext", "volumeMounts", "volumes", "hostIPC", "hostNetwork")
_SHM = "/dev/shm"  # noqa: S108 - a path in containers
_MAX_TEXT = 200


@record
class Manifest(Record):
    """One file."""

    name: str
    pods: list[Pod]

    def identity(self) -> Identity:
        """Return what identifies its jobs: names of pods, and how names begin that are made from templates."""
        return Identity(
            hosts=frozenset(short(name) for pod in self.pods for name in pod.hosts),
            # A single one that somebody put beside the log is meant, whatever it is called there.
            are_all_hosts=len(self.pods) > 1 and all(pod.is_host_known for pod in self.pods),
            prefixes=tuple(f"{short(pod.name)}-" for pod in self.pods if pod.is_template and pod.name),
            is_of_many=True,
        )


def recognises(_name: str, head: bytes) -> bool:
    """Return whether a file is a manifest from its beginning: a log may quote one."""
    if _NCCL.search(head):
        return False
    if _JSON.match(head):
        return b'"apiVersion"' in head and b'"kind"' in head and located.is_json(head)
    return all(key.search(head) for key in _KEYS) and located.has_only(_YAML_LINE, head.removeprefix(b"\xef\xbb\xbf"))


def read(name: str, data: bytes) -> Manifest:
    """Return a manifest.

    Raises:
        ValueError: it is not YAML, holds too much, or describes no pod.
    """
    documents = located.documents(data)
    items: list[Node] = []
    for document in documents:
        listed = document.at("items")
        items += listed.elements if listed.kind == "sequence" else [document]
    pods = [pod for item in items for pod in _pods(item, name)]
    if not pods:
        kinds = ", ".join(dict.fromkeys(document.word("kind") for document in documents if document.word("kind")))
        raise ValueError(f"it describes no pod ({kinds[:80] or 'no kind'})")
    return Manifest(name, pods)


def _pods(item: Node, file: str) -> Iterator[Pod]:
    kind, name = item.word("kind") or "Pod", item.word("metadata", "name")
    owners = item.at("metadata", "ownerReferences").elements
    for path, around, spec in located.find(item, key="spec", having="containers"):
        own = item if path == "spec" else around
        yield Pod(
            file=file,
            kind=kind,
            name=name,
            path=path,
            line=spec.line,
            containers=_containers(spec, path),
            is_whole=kind not in _PARTIAL,
            host_ipc=spec.is_true("hostIPC"),
            host_network=spec.is_true("hostNetwork"),
            networks=next(filter(None, (own.word("metadata", "annotations", key) for key in _NETWORKS)), ""),
            namespace=item.word("metadata", "namespace"),
            node=spec.word("nodeName"),
            machine=spec.word("nodeSelector", _MACHINE),
            hostname=spec.word("hostname"),
            owner=owners[0].word("name") if owners else "",
            address=item.word("status", "hostIP"),
            ended=_list_ends(item.at("status")) if kind == "Pod" else [],
            tree=_select_keys(spec),
        )
    if kind != _JOB and not item.at("spec", "trainer"):
        return
    # The trainer of a TrainJob replaces parts of what its runtime has.
    trainer, path = item.at("spec", "trainer"), "spec.trainer"
    has_overrides = any(item.at("spec", key) for key in _OVERRIDES)
    container = Container(
        name="trainer",
        path=path,
        line=trainer.line or item.line,
        resources=_resources(trainer.at("resourcesPerNode")),
        env=variables(_env(trainer), f"{path}.env"),
        elsewhere=Place(file, path, _select_keys(trainer), _OF_TRAINER),
    )
    yield Pod(
        file,
        item.word("kind") or _JOB,
        name,
        path,
        container.line,
        [container],
        is_whole=False,
        namespace=item.word("metadata", "namespace"),
        runtime="" if has_overrides else item.word("spec", "runtimeRef", "name"),
    )


def _containers(spec: Node, path: str) -> list[Container]:
    containers = []
    for index, node in enumerate(spec.at("containers").elements):
        inside = f"{path}.containers[{index}]"
        security = node.at("securityContext")
        name = node.word("name")
        user = security.number("runAsUser")
        mounts, volumes = node.at("volumeMounts").elements, spec.at("volumes").elements
        shm, line = math.inf if spec.is_true("hostIPC") else float(DEFAULT_SHM), node.line
        if mount := next((m for m in mounts if m.word("mountPath").rstrip("/") == _SHM), ABSENT):
            volume = next((v for v in volumes if v.word("name") == mount.word("name")), ABSENT)
            limit = volume.at("emptyDir", "sizeLimit")
            size = quantity(limit.text or "")
            shm, line = (math.inf, mount.line) if size is None else (size, limit.line)
        mounted = {mount.word("name") for mount in mounts}
        folders = (volume.word("hostPath", "path") for volume in volumes if volume.word("name") in mounted)
        containers.append(
            Container(
                name=name,
                path=inside,
                line=node.line,
                image=node.word("image"),
                resources=_resources(node.at("resources")),
                privileged=security.is_true("privileged"),
                capabilities=frozenset(word.upper() for word in security.words("capabilities", "add")),
                user=spec.number("securityContext", "runAsUser") if user is None else user,
                shm=shm,
                shm_line=line,
                devices=tuple(filter(None, folders)),  # of the node, mounted into the container
                env=variables(_env(node), f"container {name}"),
                tree=_select_keys(node),
            )
        )
    return containers


def _resources(node: Node) -> dict[str, str]:
    """Return what a container asks for: of extended resources requests and limits are the same."""
    both = (node.at("requests"), node.at("limits"))
    return {key: entry.text for part in both for key, entry in part.entries.items() if entry.text}


def _env(node: Node) -> Iterator[tuple[str, str | None, int]]:
    for entry in node.at("env").elements:
        value = entry.at("value")
        yield entry.word("name"), None if entry.at("valueFrom") else value.text or "", value.line or entry.line


def _list_ends(status: Node) -> list[Ended]:
    ends = []
    if (reason := status.word("reason")) and status.word("phase") == "Failed":
        text = f"reason: {reason}, message: {' '.join(status.word('message').split())[:_MAX_TEXT]}"
        ends.append(Ended(reason, None, status.at("reason").line, "status", text))
    for group in ("initContainerStatuses", "containerStatuses"):
        for index, entry in enumerate(status.at(group).elements):
            for state in ("state", "lastState"):
                over = entry.at(state, "terminated")
                if over:
                    reason, code = over.word("reason") or "Error", over.number("exitCode")
                    when, restarts = over.word("finishedAt"), entry.number("restartCount") or 0
                    text = f"container {entry.word('name')}: {reason}, exitCode {code}, finishedAt {when or '?'}"
                    where = f"status.{group}[{index}].{state}.terminated"
                    ends.append(Ended(reason, code, over.line, where, text, when, restarts))
    return ends


def _select_keys(node: Node) -> Node:
    """Return the keys that a fix may add to; others may be secret and are not kept."""
    entries = {key: entry for key, entry in node.entries.items() if key in _KEPT}
    return replace(node, entries=entries)


# TrainJobs, joined to the runtimes that they refer to: both together say all that their pods get


def join_pods(pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods, those of a runtime as the TrainJob has them that refers to it.

    What stands neither here nor there they do not have.
    """
    runtimes = group_values((pod.name, pod) for pod in pods if pod.kind in _RUNTIMES)
    whole: dict[int, list[Pod]] = {}
    for job in pods:
        templates = runtimes.get(job.runtime, []) if job.runtime else []
        for pod in templates:
            containers = list(pod.containers)
            trainer = job.containers[0]
            for at, container in enumerate(containers):
                if container.name in _TRAINED or len(templates) == 1:
                    given = {variable.name for variable in trainer.env}
                    env = [*(entry for entry in container.env if entry.name not in given), *trainer.env]
                    containers[at] = replace(container, env=env)
                    if trainer.resources:
                        containers[at].resources, containers[at].elsewhere = trainer.resources, trainer.elsewhere
            own = replace(pod, kind=job.kind, name=job.name, namespace=job.namespace, is_whole=True)
            whole.setdefault(id(job), []).append(replace(own, containers=containers))
    used = {job.runtime for job in pods if id(job) in whole}
    return [
        made for pod in pods if not (pod.kind in _RUNTIMES and pod.name in used) for made in whole.get(id(pod), [pod])
    ]
