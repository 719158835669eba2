"""A shared memory segment could not be created."""

from __future__ import annotations

from nccl_inspect.judging.engine import Facts, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.impact import MEASURED, Estimate, cited
from nccl_inspect.judging.statements import error_of
from nccl_inspect.util.records import Frozen, frozen

RULE = Rule(
    name="shm-segment-failed",
    category="intra-node path",
    title="A shared memory segment in /dev/shm could not be created",
    shows=("no-shm",),
    supersedes=("shm-attach-failed",),
    local=True,
)
_NO_SPACE = 28
_IMPACT = Estimate(
    "the rank fails, and with it the job. One segment took 4 MB with 2.19 and 33 MB with 2.27, so an upgrade alone can "
    "break a job that worked before",
    (cited("4 MB and 33 MB", "one segment of NCCL 2.19.4 and of 2.27.3", MEASURED),),
)


@frozen
class _Refusal(Frozen):
    """Segments that could not be created."""

    notices: list[Notice]
    full: list[Notice]
    """Calls that found no room."""
    sizes: list[int]
    """In bytes, as far as they are printed."""
    codes: set[int]
    """Of errno."""
    errors: list[str]
    """In words, but for the lack of room."""


def judge(facts: Facts) -> Results:
    """Judge warnings about creating a segment; one about attaching to it alone is the echo of a failure elsewhere."""
    refusal = _refusal(facts)
    if not refusal.notices:
        return
    asked = f" of {max(refusal.sizes) / 1e6:.1f} MB" if refusal.sizes else ""
    errors = f": {', '.join(refusal.errors)}" if refusal.errors else ""
    yield RULE.finding(
        f"a shared memory segment{asked} could not be created in /dev/shm{errors}",
        cause=_cause(refusal),
        impact=_IMPACT,
        fix=[
            "volumes: [{name: dshm, emptyDir: {medium: Memory, sizeLimit: 64Gi}}]   # pod spec",
            "volumeMounts: [{name: dshm, mountPath: /dev/shm}]   # pod spec, of the container",
            "--shm-size=16g   # option of docker run; or --ipc=host",
            "df -h /dev/shm; ls -l /dev/shm/nccl-*   # left behind by a crashed job? remove them",
        ],
        notices=refusal.notices,
        evidence=first_evidence([*refusal.full, *refusal.notices]),
        confidence="certain" if refusal.codes else "likely",
        fatal=True,
    )


def _refusal(facts: Facts) -> _Refusal:
    failed = [
        *facts.errors_of_rule(RULE.name),
        *(notice for notice in facts.notices("nccl/shm-segment-failed") if value(notice, "what") == "creating"),
        *(notice for notice in facts.notices("nccl/shm-open-failed-old") if value(notice, "size") is not None),
    ]
    full = list(filter(_is_full, facts.notices("nccl/system-call-failed", "nccl/shm-open-failed-old")))
    failed = failed or full
    codes = {code for notice in failed if (code := value(notice, "errno")) is not None}
    return _Refusal(
        failed,
        full,
        sizes=[size for notice in failed if (size := value(notice, "size")) is not None],
        codes=codes | ({_NO_SPACE} if full else set()),
        errors=sorted({str(value(n, "error")) for n in failed if value(n, "errno") not in (None, _NO_SPACE)}),
    )


def _cause(refusal: _Refusal) -> str:
    if _NO_SPACE in refusal.codes:
        return "no room: /dev/shm is full or too small (containers get 64 MiB by default)"
    if refusal.codes:
        return (
            f"the system refuses it ({', '.join(refusal.errors)}): a cgroup or memory limit, a sandbox such as gVisor, "
            "or a read-only mount"
        )
    return (
        "most often /dev/shm is full or too small (containers get 64 MiB by default); this release does not print the "
        "reason"
    )


def _is_full(notice: Notice) -> bool:
    """Whether there was no room for a file: up to 2.11 the call that creates the segment reports it."""
    allocates = value(notice, "size") is not None or "allocate" in str(value(notice, "call"))
    return allocates and error_of(notice) == "No space left on device"
