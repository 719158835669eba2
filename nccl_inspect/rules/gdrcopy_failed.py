"""GDRCopy was requested and does not work."""

from nccl_inspect.judging.engine import Facts, Results, Rule, value

RULE = Rule(
    name="gdrcopy-failed",
    category="gpudirect",
    severity="info",
    title="GDRCopy, which lets the CPU write directly to GPU memory, does not work",
)
_REQUIRED = "nccl/gdrcopy-required"


def judge(facts: Facts) -> Results:
    """Judge failed calls of GDRCopy and a missing library: by default NCCL does not use it."""
    missing = [notice for notice in facts.notices("nccl/driver-library-missing") if value(notice, "__library")]
    notices = [*facts.errors_of_rule(RULE.name), *missing]
    if not notices:
        return
    hurt = facts.job.failed or any(notice.production == _REQUIRED for notice in notices)
    yield RULE.finding(
        f"GDRCopy does not work: {notices[0].message}",
        cause="the module gdrdrv is not loaded on the host, its device or library is not in the container, or its "
        "release does not match the driver",
        impact="if a setting or a plugin requires it, the call fails; otherwise only small-message latency is higher"
        if hurt
        else "small: NCCL uses it only to reduce the latency of small messages, and only if NCCL_GDRCOPY_ENABLE=1 "
        "requests it",
        fix=[
            "NCCL_GDRCOPY_ENABLE=0   # disables it, which is the default",
            "lsmod | grep gdrdrv; ls -l /dev/gdrdrv; ldconfig -p | grep libgdrapi   # on the host, then inside",
        ],
        severity="warning" if hurt else "info",
        confidence="likely",
        notices=notices,
        explains_errors=notices,
    )
