"""The container's /dev/shm is too small."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import Case, Change
from nccl_inspect.judging.remedies import COMMENT

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Container, Pod
from nccl_inspect.judging.engine import Evidence, Facts, Finding, Layer, Results, Rule

RULE = Rule(
    name="shm-volume-missing",
    category="intra-node path",
    layer=Layer.SYSTEM,
    title="The manifest gives the container a /dev/shm that is too small",
    may_cause=("system", "resource", "call", "end", "no-shm"),
)
_NO_ROOM = ("no room", "most often /dev/shm")
"""Beginnings of the cause if the size is at fault."""
_SMALL = 1 << 30
"""Bytes per GPU that NCCL alone never fills: a segment takes up to some tens of MB."""
_DOCKER = "--shm-size=16g   # option of docker run; or --ipc=host"
_CHECK = "df -h /dev/shm   # in the container"


def explain(facts: Facts, effects: Sequence[Finding]) -> Results:
    """Judge segments that had no room by the volume mounted at /dev/shm."""
    faults = [effect for effect in workloads.faults(RULE, effects) if effect.cause.startswith(_NO_ROOM)]
    cases = workloads.cases(facts, _is_small) if faults else []
    faults = workloads.effects_on(facts, cases, faults)
    if not cases or not faults:
        return
    container = cases[0].container
    yield workloads.finding_of(
        RULE,
        facts,
        cases,
        faults,
        f"{workloads.names_of(cases)} {workloads.verb(cases, 'gets', 'get')} {int(container.shm) >> 20} MiB of /dev/shm"
        + (": no volume is mounted there" if container.has_default_shm else ""),
        cause="NCCL creates a segment in /dev/shm for each connection through host memory, and PyTorch's data loaders "
        "store batches there; they need more than this",
        fix=[*_fix(cases), _CHECK],
        evidence=[_line(case) for case in cases],
    )


def _is_small(pod: Pod, container: Container) -> bool:
    return pod.is_whole and container.shm < _SMALL * max(container.gpus, 1)


def _fix(cases: list[Case]) -> Iterator[str]:
    first = cases[0]
    if first.pod.kind == "container":
        yield _DOCKER
    elif first.container.has_default_shm:
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
