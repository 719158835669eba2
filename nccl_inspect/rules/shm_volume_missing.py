"""The container's /dev/shm is too small."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_inspect.judging.engine import Evidence, Facts, Finding
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import Case, Change
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.judging.remedies import COMMENT

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Container, Pod

_NO_ROOM = ("no room", "most often /dev/shm")
"""Beginnings of the cause if the size is at fault."""
_SMALL = 1 << 30
"""Bytes per GPU that NCCL alone never fills: a segment takes up to some tens of MB."""


def find(facts: Facts, findings: Sequence[Finding]) -> Iterator[Hit]:
    """Find segments that had no room, and the volume mounted at /dev/shm."""
    shown = [effect for effect in workloads.faults("shm-volume-missing", findings) if effect.cause.startswith(_NO_ROOM)]
    cases = workloads.cases(facts, _is_small) if shown else []
    if faults := workloads.effects_on(facts, cases, shown) if cases else []:
        container = cases[0].container
        docker = cases[0].pod.kind == "container"
        named = {
            "pods": workloads.names_of(cases),
            "one": workloads.are_one_pod(cases),
            "size": int(container.shm) >> 20,
            "default": container.has_default_shm,
            "docker": docker,
            "steps": [] if docker else list(_steps(cases)),
        }
        yield Hit(named=named, evidence=[_line(case) for case in cases], effects=faults, cases=cases)


def _is_small(pod: Pod, container: Container) -> bool:
    return pod.is_whole and container.shm < _SMALL * max(container.gpus, 1)


def _steps(cases: list[Case]) -> Iterator[str]:
    first = cases[0]
    if first.container.has_default_shm:
        mount = {"name": "dshm", "mountPath": "/dev/shm"}  # noqa: S108 - a path in the container
        volume = {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}
        changes = [Change(("volumeMounts",), [mount]), Change(("volumes",), [volume], of_pod=True)]
        yield from workloads.patches([case for case in cases if case.container.has_default_shm], lambda _: changes)
    else:
        yield f"sizeLimit: 64Gi{COMMENT}{first.pod.file.rpartition('/')[2]}:{first.container.shm_line}: change it there"


def _line(case: Case) -> Evidence:
    container = case.container
    if case.pod.kind == "container":
        return case.line(f"ShmSize: {int(container.shm)}", container.shm_line)
    if container.shm_line == container.line:
        return case.line("nothing in volumeMounts has mountPath: /dev/shm")
    return case.line(f"the volume at /dev/shm has sizeLimit: {int(container.shm) >> 20} MiB", container.shm_line)
