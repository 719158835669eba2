"""RCCL wants HSA_NO_SCRATCH_RECLAIM=1 with this runtime and firmware."""

from nccl_inspect.judging.engine import Facts, Results, Rule

RULE = Rule(
    name="rccl-scratch-reclaim",
    category="environment",
    severity="warning",
    title="RCCL needs HSA_NO_SCRATCH_RECLAIM=1 with this runtime and firmware",
)
_REFUSED = "rccl/rccl-scratch-reclaim-rerun"


def judge(facts: Facts) -> Results:
    """Judge the warning; some releases refuse to start without the variable."""
    refused = facts.notices(_REFUSED)
    missing = [*facts.notices("rccl/rccl-scratch-reclaim"), *refused]
    if not missing:
        return
    stops = bool(refused) and not facts.job.paths
    yield RULE.finding(
        "RCCL misses HSA_NO_SCRATCH_RECLAIM=1" + (" and does not start without it" if stops else ""),
        cause="this combination of HIP runtime and GPU firmware frees the scratch memory of kernels and gets it again "
        "for each launch",
        impact="RCCL returns an error, and the job stops" if stops else "collectives are slower than the GPUs allow",
        fix=[
            "HSA_NO_SCRATCH_RECLAIM=1   # in the environment of all ranks",
            "Or update ROCm and the GPU firmware: newer ones do not need the variable.",
        ],
        severity="error" if stops else "warning",
        confidence="certain",
        notices=missing,
        fatal=stops,
    )
