"""CollNet (in-network reduction) was requested but is unavailable."""

from nccl_inspect.judging.engine import Facts, Finding, Needs, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, unset_steps
from nccl_inspect.model.job import Setting

RULE = Rule(
    name="collnet-unavailable",
    category="network",
    severity="info",
    title="CollNet (in-network reduction) was requested but is unavailable",
    shows=("no-collnet",),
)


def judge(facts: Facts) -> Results:
    """Judge requests for CollNet: NCCL usually continues silently, but fails if NCCL_ALGO allows nothing else."""
    requests = [*facts.enabled_settings("NCCL_COLLNET_ENABLE"), *_forced(facts)]
    stuck = [n for n in facts.notices("nccl/no-algorithm") if "collnet" in str(value(n, "settings")).lower()]
    refused = facts.notices("nccl/collnet-unavailable")
    if stuck or refused:
        yield _finding(requests, [*stuck, *refused], "certain", stuck=bool(stuck))
        return
    connected = facts.notices("nccl/collnet-connected", "nccl/collnet-chains")
    if not requests or connected or not facts.spans_hosts():
        return
    searches = facts.plugin("COLLNET", "probe") or facts.plugin("NET", "not-found")
    if searches and not facts.plugin("COLLNET", "loaded"):
        yield _finding(requests, searches[:2], "likely", stuck=False)
    else:
        yield RULE.undecided(
            f"{as_shell(requests)} requests CollNet; the log does not show whether it is in use",
            Needs("the log past the first all-reduce: look for 'Connected CollNet'", subsystems=("INIT", "ENV", "NET")),
        )


def _forced(facts: Facts) -> list[Setting]:
    """``NCCL_ALGO`` if it names CollNet other than to exclude it."""
    return [s for s in facts.user_settings("NCCL_ALGO") if "collnet" in s.value.lower() and "^" not in s.value]


def _finding(requests: list[Setting], notices: list[Notice], confidence: str, *, stuck: bool) -> Finding:
    reason = "no plugin that supports it was loaded, or the communicator does not fit (too few nodes, too many GPUs)"
    return RULE.finding(
        "CollNet was requested but is not used" + (f" ({as_shell(requests)})" if requests else ""),
        cause=f"NCCL_ALGO allows only CollNet, which is unavailable: {reason}" if stuck else reason,
        impact="the collective fails, and with it the job"
        if stuck
        else "NCCL uses rings and trees as it would without the setting",
        fix=[
            "Use InfiniBand switches with SHARP and the plugin from HPC-X, which prints 'Loaded collnet plugin SHARP'.",
            "ldconfig -p | grep libnccl-net   # inside the container: which plugin is installed?",
            *unset_steps(requests),
        ],
        severity="error" if stuck else "info",
        confidence=confidence,
        notices=notices,
        evidence=[*first_evidence(notices)[:3], *evidence_of_settings(requests, 1)],
        fatal=stuck,
    )
