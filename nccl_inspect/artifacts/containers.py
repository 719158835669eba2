"""What files beside the log say of the containers of a job, whoever runs them.

Manifests of Kubernetes are what ``kubectl get pod -o yaml`` (or ``-o json``) says, and what was written by hand. Pods
are found by their shape, a ``spec`` with ``containers``, so that any kind that makes pods is understood. A container
of ``docker inspect`` (or ``podman inspect``) is a pod with one container.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace

from nccl_inspect.artifacts import Identity, Kind, located, short
from nccl_inspect.artifacts.located import ABSENT, Node
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import Frozen, Record

DEFAULT_SHM = 64 << 20  # bytes of /dev/shm that a container gets where nothing else is asked for
_RELEVANT = re.compile(r"(?:NCCL|RCCL|FI|OFI|UCX|RDMAV|GLOO|TORCH|CUDA|NVIDIA)_\w+")
"""Variables that are kept: others may hold secrets, and say nothing of NCCL."""
_QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{1,9})?(?:e\d{1,2})?)(m|k|[KMGTPE]i?)?")
_GPUS = ("/gpu", "nvidia.com/mig-", "nvidia.com/gpu.shared")


class Variable(Frozen):
    """A variable that a file gives to a program."""

    name: str
    value: str | None  # None where it comes from elsewhere (`valueFrom`)
    line: int
    owner: str  # who gets it: the container, the script


class Ended(Frozen):
    """Holds how a container or pod ended, as who runs it says."""

    reason: str  # `OOMKilled`, `Evicted`, `Error`, …
    code: int | None
    line: int
    where: str  # the part of the file: `status.containerStatuses[0].state.terminated`
    text: str
    when: str = ""


class Place(Frozen):
    """Holds where a part of what a container is given stands, if not beside the rest."""

    file: str
    path: str
    tree: Node
    names: dict[str, str]  # names of a container's keys there; keys that cannot occur there are missing


class Container(Record):
    """Holds what one container is given."""

    name: str
    path: str  # in the file: `spec.template.spec.containers[0]`
    line: int
    image: str = ""
    resources: dict[str, str] = field(default_factory=dict)
    privileged: bool = False
    capabilities: frozenset[str] = frozenset()
    user: int | None = None  # None where nothing says under which user it runs: most images, root
    shm: float = DEFAULT_SHM  # bytes of /dev/shm; infinite where nothing but memory limits it
    shm_line: int = 0
    devices: tuple[str, ...] = ()  # passed in by the user: `/dev/infiniband`
    memlock: float | None = None  # the limit on locked memory that is asked for; None where none is
    env: list[Variable] = field(default_factory=list)
    tree: Node = ABSENT  # what of it a fix may add to
    elsewhere: Place | None = None  # where the parts stand that the trainer of a TrainJob replaces

    def asks(self, *names: str) -> bool:
        """Return whether it asks for one of these resources; what is not a number yet (``$EFA``) may be any.

        They are whole names, beginnings that end with ``-`` or ``/``, or ends that begin with ``/``.
        """
        return any(quantity(text) != 0 for text in self._amounts(*names))

    def amount(self, *names: str) -> float:
        """Return how much it asks for of these resources; 0 where that is not a number."""
        return sum(quantity(text) or 0.0 for text in self._amounts(*names))

    def _amounts(self, *names: str) -> Iterator[str]:
        ends = tuple(name for name in names if name.startswith("/"))
        begins = tuple(name for name in names if name.endswith(("-", "/")))
        for name, text in self.resources.items():
            if name in names or name.endswith(ends) or name.startswith(begins):
                yield text

    @property
    def has_default_shm(self) -> bool:
        """Return whether nothing says how large its /dev/shm is to be."""
        return self.shm == DEFAULT_SHM and self.shm_line == self.line

    @property
    def gpus(self) -> int:
        """Return the GPUs that it asks for; parts of GPUs (MIG) count like GPUs."""
        return int(self.amount(*_GPUS))

    @property
    def has_gpus(self) -> bool:
        """Return whether it asks for GPUs, also where the number is not written yet."""
        return self.asks(*_GPUS)


class Pod(Record):
    """A pod, the template of pods, or a container of docker."""

    file: str
    kind: str  # `Pod`, `PyTorchJob`, …; `container` for docker's
    name: str  # of the pod, or of what makes pods
    path: str
    line: int
    containers: list[Container]
    is_whole: bool = True
    """Whether what is not written here is not there: a TrainJob only adds to what its runtime says."""
    host_ipc: bool = False
    host_network: bool = False
    networks: str = ""
    namespace: str = ""
    node: str = ""
    machine: str = ""  # the type of machine that it asks for: `p4d.24xlarge`
    hostname: str = ""
    owner: str = ""
    address: str = ""
    ended: list[Ended] = field(default_factory=list)
    tree: Node = ABSENT
    runtime: str = ""  # the runtime that a TrainJob refers to and adds nothing else to: it has the rest of its pods

    @property
    def is_template(self) -> bool:
        """Return whether pods with other names are made from it."""
        return self.kind not in ("Pod", "container")

    @property
    def hosts(self) -> list[str]:
        """Return the names that its host may have in a log; none of a template."""
        names = (self.name, self.hostname, self.node if self.host_network else "")
        return [] if self.is_template else [name for name in names if name]

    @property
    def is_host_known(self) -> bool:
        """Return whether its host has one of these names."""
        name = self.hostname if self.kind == "container" else self.node if self.host_network else self.name
        return bool(name) and self.is_whole and not self.is_template

    @property
    def label(self) -> str:
        """Return how it is called in words."""
        return f"{self.kind} {self.name}".strip()

    @property
    def workers(self) -> list[Container]:
        """Return the containers with GPUs; the first one where nothing says which has some."""
        return [container for container in self.containers if container.has_gpus] or self.containers[:1]


def quantity(text: str) -> float | None:
    """Return a quantity as Kubernetes writes it: ``64Gi``, ``500m``; None for anything else."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        return None
    unit = match[2] or ""
    power = ("m", "", "K", "M", "G", "T", "P", "E").index(unit[:1].replace("k", "K")) - 1
    return float(match[1]) * (1024.0 if unit.endswith("i") else 1000.0) ** power


def variables(pairs: Iterable[tuple[str, str | None, int]], owner: str) -> list[Variable]:
    """Return those variables that may say something of NCCL."""
    return [Variable(name, value, line, owner) for name, value, line in pairs if is_relevant(name)]


def is_relevant(name: str) -> bool:
    """Return whether a variable may say something of NCCL."""
    return _RELEVANT.fullmatch(name) is not None


# Kubernetes

_JSON = re.compile(rb'\s*\{\s*"(?:apiVersion|kind|items|metadata)"\s*:')
_YAML_LINE = re.compile(rb"(?:[A-Za-z_][\w.$/-]*:(?:[ \t].*)?|- .*|-|---(?: .*)?|\.\.\.|%YAML.*|[ \t#].*|)\r?$")
_STATED = (re.compile(rb"^apiVersion:[ \t]", re.MULTILINE), re.compile(rb"^kind:[ \t]", re.MULTILINE))
OF_A_LOG = re.compile(rb"\bNCCL (?:INFO|WARN|TRACE) ")  # what a log has that quotes a file
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


def _is_manifest(head: bytes) -> bool:
    """Return whether a file is a manifest from its beginning: a log may quote one."""
    if OF_A_LOG.search(head):
        return False
    if _JSON.match(head):
        return b'"apiVersion"' in head and b'"kind"' in head and located.is_json(head)
    return all(key.search(head) for key in _STATED) and located.has_only(_YAML_LINE, head.removeprefix(b"\xef\xbb\xbf"))


def read_manifest(name: str, data: bytes) -> Manifest:
    """Return the pods of a file; a ValueError says that it is not YAML, holds too much, or describes none."""
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
    for path, around, spec in _find_specs(item, "", set()):
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


def _find_specs(node: Node, path: str, seen: set[int]) -> Iterator[tuple[str, Node, Node]]:
    """Yield the specs of pods, each with its path and what is around it."""
    if id(node) in seen:  # an alias stands elsewhere, too
        return
    seen.add(id(node))
    spec = node.at("spec")
    if spec.at("containers").elements:
        yield located.join_keys(path, "spec"), node, spec
    for name, entry in node.entries.items():
        if entry.kind != "scalar":
            yield from _find_specs(entry, located.join_keys(path, name), seen)
    for index, element in enumerate(node.elements):
        yield from _find_specs(element, f"{path}[{index}]", seen)


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
                if over := entry.at(state, "terminated"):
                    reason, code = over.word("reason") or "Error", over.number("exitCode")
                    when = over.word("finishedAt")
                    text = f"container {entry.word('name')}: {reason}, exitCode {code}, finishedAt {when or '?'}"
                    where = f"status.{group}[{index}].{state}.terminated"
                    ends.append(Ended(reason, code, over.line, where, text, when))
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


# Docker

_DOCKER = (b'"Id"', b'"HostConfig"', b'"Config"')


def _is_of_docker(head: bytes) -> bool:
    return all(key in head for key in _DOCKER) and located.is_json(head) and head.lstrip()[:1] in (b"[", b"{")


def read_docker(name: str, data: bytes) -> Manifest:
    """Return a pod for each container; a ValueError says that there is none."""
    items = [item for document in located.documents(data) for item in (document, *document.elements)]
    pods = [_docker_pod(item, name) for item in items if item.at("HostConfig")]
    if not pods:
        raise ValueError("it describes no container")
    return Manifest(name, pods)


def _docker_pod(item: Node, file: str) -> Pod:
    host, state = item.at("HostConfig"), item.at("State")
    memlock = next((entry for entry in host.at("Ulimits").elements if entry.word("Name") == "memlock"), ABSENT)
    soft, code, ended = memlock.number("Soft"), state.number("ExitCode"), []
    if code and not state.is_true("Running"):
        is_killed, when = state.is_true("OOMKilled"), state.word("FinishedAt")
        reason, line = "OOMKilled" if is_killed else "Error", state.at("OOMKilled" if is_killed else "ExitCode").line
        text = f"{reason}, ExitCode {code}, FinishedAt {when or '?'}"
        ended.append(Ended(reason, code, line, "State", text, when))
    name = item.word("Name").lstrip("/") or item.word("Id")[:12]
    is_shared = host.word("IpcMode") == "host"
    requests = host.at("DeviceRequests").elements
    gpus = sum(len(request.at("DeviceIDs").elements) or request.number("Count") or 0 for request in requests)
    env = [((entry.text or "").partition("="), entry.line) for entry in item.at("Config", "Env").elements]
    container = Container(
        name=name,
        path="HostConfig",
        line=host.line,
        image=item.word("Config", "Image"),
        resources={"nvidia.com/gpu": str(gpus)} if gpus > 0 else {},  # all of them have no number
        privileged=host.is_true("Privileged"),
        capabilities=frozenset(word.upper().removeprefix("CAP_") for word in host.words("CapAdd")),
        shm=math.inf if is_shared else float(host.number("ShmSize") or DEFAULT_SHM),
        shm_line=host.at("ShmSize").line or host.line,
        devices=tuple(device.word("PathOnHost") for device in host.at("Devices").elements),
        memlock=None if soft is None else math.inf if soft < 0 else float(soft),
        env=variables(((name, value, line) for (name, _, value), line in env), f"container {name}"),
    )
    return Pod(
        file=file,
        kind="container",
        name=name,
        path="HostConfig",
        line=host.line,
        containers=[container],
        host_ipc=is_shared,
        host_network=host.word("NetworkMode") == "host",
        networks="" if host.word("NetworkMode") in ("default", "bridge", "") else host.word("NetworkMode"),
        hostname=item.word("Config", "Hostname"),
        ended=ended,
    )


KINDS = (
    Kind("docker_inspect", "docker inspect", _is_of_docker, read_docker),
    Kind("manifest", "Kubernetes manifest", _is_manifest, read_manifest, is_yaml=True),
)
