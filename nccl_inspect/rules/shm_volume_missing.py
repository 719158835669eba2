"""The container gets too small a /dev/shm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import Case, Change
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.remedies import COMMENT
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, NotJudged

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Container, Pod

RULE = Rule(
    name="shm-volume-missing",
    category="intra-node path",
    severity="error",
    title="The manifest gives the container too small a /dev/shm",
    explains=("shm-segment-failed",),
)
_NO_ROOM = ("no room", "most often /dev/shm")
"""How the cause begins where the size is at fault."""
_SMALL = 1 << 30
"""Bytes for each GPU with which NCCL alone never fills it: a segment takes up to some tens of MB."""
_DOCKER = "--shm-size=16g   # option of docker run; or --ipc=host"
_CHECK = "df -h /dev/shm   # in the container"


def judge(facts: Facts, effects: Sequence[Finding]) -> Iterator[Finding | NotJudged]:
    """Judge segments that had no room by what is mounted at /dev/shm."""
    shown = [effect for effect in workloads.faults(effects) if effect.cause.startswith(_NO_ROOM)]
    found = workloads.cases(facts, _is_small) if shown else []
    shown = workloads.touched(facts, found, shown)
    if not found or not shown:
        return

    case = found[0]
    megabytes = int(case.container.shm) >> 20
    unset = case.container.has_default_shm
    yield workloads.explained(
        RULE,
        facts,
        found,
        shown,
        f"{workloads.called(found)} {workloads.verb(found, 'gets', 'get')} {megabytes} MiB of /dev/shm"
        + (": no volume is mounted there" if unset else ""),
        cause="NCCL makes a segment in /dev/shm for each connection through host memory, and PyTorch's data loaders "
        "put batches there; this is less than they need",
        fix=[*_fix(found, unset), _CHECK],
        evidence=[_line(one) for one in found],
    )


def _is_small(pod: Pod, container: Container) -> bool:
    return pod.is_whole and container.shm < _SMALL * max(container.gpus, 1)


def _fix(found: list[Case], unset: bool) -> Iterator[str]:
    case = found[0]
    if case.pod.kind == "container":
        yield _DOCKER
    elif unset:
        mount = {"name": "dshm", "mountPath": "/dev/shm"}  # noqa: S108 - a path in the container
        volume = {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}
        changes = [Change(("volumeMounts",), [mount]), Change(("volumes",), [volume], of_pod=True)]
        yield from workloads.patches([one for one in found if one.container.has_default_shm], lambda _: changes)
    else:
        yield f"sizeLimit: 64Gi{COMMENT}{case.pod.file.rpartition('/')[2]}:{case.container.shm_line}, in its place"


def _line(case: Case) -> Evidence:
    container = case.container
    if case.pod.kind == "container":
        return case.line(f"ShmSize: {int(container.shm)}", container.shm_line)
    if container.shm_line == container.line:
        return case.line("nothing in volumeMounts has mountPath: /dev/shm")
    return case.line(f"the volume at /dev/shm has sizeLimit: {int(container.shm) >> 20} MiB", container.shm_line)
