"""GDRCopy was asked for and does not work."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.statements import value
from nccl_inspect.model.finding import Finding, NotJudged

RULE = Rule(
    name="gdrcopy-failed",
    category="gpudirect",
    severity="info",
    title="GDRCopy, by which the CPU writes into GPU memory, does not work",
)
_REQUIRED = "nccl/gdrcopy-required"


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge calls of GDRCopy that failed, and its library where it is missing: NCCL does without by default."""
    missing = [notice for notice in facts.leading_to("cuda-lib-missing") if value(notice, "__library")]
    said = [*facts.leading_to(RULE.name), *missing]
    if not said:
        return
    hurt = facts.job.failed or any(notice.production == _REQUIRED for notice in said)
    yield RULE.finding(
        f"GDRCopy does not work: {said[0].message}",
        cause="the module gdrdrv is not loaded on the host, its device or library is not in the container, or its "
        "release "
        "does not fit the driver",
        impact="where a setting or a plugin needs it the call fails; else only the latency of small messages"
        if hurt
        else "small: NCCL uses it only for the latency of small messages, and only where NCCL_GDRCOPY_ENABLE=1 asks "
        "for it",
        fix=[
            "NCCL_GDRCOPY_ENABLE=0   # goes without it, which is the default",
            "lsmod | grep gdrdrv; ls -l /dev/gdrdrv; ldconfig -p | grep libgdrapi   # the host, then the container",
        ],
        severity="warning" if hurt else "info",
        confidence="likely",
        notices=said,
        explains_errors=said,
    )
