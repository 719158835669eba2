"""What files beside the log say of the containers of a job, whoever runs them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import field

from nccl_inspect.artifacts.located import ABSENT, Node
from nccl_inspect.util.records import Frozen, Record, frozen, record

DEFAULT_SHM = 64 << 20  # bytes of /dev/shm that a container gets where nothing else is asked for
_RELEVANT = re.compile(r"(?:NCCL|RCCL|FI|OFI|UCX|RDMAV|GLOO|TORCH|CUDA|NVIDIA)_\w+")
"""Variables that are kept: others may hold secrets, and say nothing of NCCL."""
_QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{1,9})?(?:e\d{1,2})?)(m|k|[KMGTPE]i?)?")
_GPUS = ("/gpu", "nvidia.com/mig-", "nvidia.com/gpu.shared")


@frozen
class Variable(Frozen):
    """A variable that a file gives to a program."""

    name: str
    value: str | None  # None where it comes from elsewhere (`valueFrom`)
    line: int
    owner: str  # who gets it: the container, the script


@frozen
class Ended(Frozen):
    """Holds how a container or pod ended, as who runs it says."""

    reason: str  # `OOMKilled`, `Evicted`, `Error`, …
    code: int | None
    line: int
    where: str  # the part of the file: `status.containerStatuses[0].state.terminated`
    text: str
    when: str = ""
    restarts: int = 0


@frozen
class Place(Frozen):
    """Holds where a part of what a container is given stands, if not beside the rest."""

    file: str
    path: str
    tree: Node
    names: dict[str, str]  # names of a container's keys there; keys that cannot occur there are missing


@record
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

        Args:
            names: whole ones; or beginnings that end with ``-`` or ``/``; or ends that begin with ``/``.
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


@record
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
