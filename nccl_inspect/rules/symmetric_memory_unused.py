"""The program asks for symmetric memory or communication by the GPU, and NCCL silently does without."""

from __future__ import annotations

from nccl_inspect.judging.engine import Facts, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import as_shell, evidence_of_settings

RULE = Rule(
    name="symmetric-memory-unused",
    category="environment",
    severity="info",
    title="Symmetric windows, or communication started by the GPU (GIN), are asked for and not used",
)
_REGISTERED, _UNSUPPORTED = "nccl/symmetric-registration-unsupported", "nccl/symmetric-unsupported"
_GIN = ("NCCL_GIN_TYPE", "NCCL_GIN_ENABLE")
_OFF = ("0", "-1", "none")


def judge(facts: Facts) -> Results:
    """Judge windows that were registered without effect, and a GIN that a setting asks for and no plugin provides."""
    if registered := facts.notices(_REGISTERED):
        reasons = facts.notices(_UNSUPPORTED)
        yield RULE.finding(
            "the program registers symmetric windows, which NCCL cannot use here",
            cause=_reason(reasons),
            impact="calls on these buffers use the ordinary kernels: small messages take longer; results are the same",
            fix=[
                "NCCL_CUMEM_ENABLE=1   # symmetric memory needs it; and a driver and containers that permit it",
                "nccl-inspect explain symmetric-memory-unused   # across hosts without NVLink it needs GIN",
            ],
            confidence="certain" if reasons else "likely",
            notices=registered,
            evidence=first_evidence([*registered, *reasons]),
        )
    asked = [setting for setting in facts.user_settings(*_GIN) if setting.value.lower() not in _OFF]
    failed = facts.plugin("GIN", "failed")
    if asked and failed and not facts.plugin("GIN", "assigned", "initialised"):
        yield RULE.finding(
            f"{as_shell(asked)} asks for communication started by the GPU (GIN), and no plugin provides it",
            cause="no NIC, plugin or driver here supports the type that is asked for: 2 is a proxy thread, 3 the GPU "
            "itself "
            "(GDAKI: mlx5 with DOCA, or EFA)",
            impact="programs that need GIN (DeepEP, device-side collectives) fail or use something else; others are "
            "not "
            "concerned",
            fix=[
                "NCCL_GIN_TYPE=2   # the proxy thread, which most NICs support",
                "NCCL_DEBUG_SUBSYS=INIT,NET   # why each plugin was not used",
            ],
            severity="warning",
            confidence="likely",
            evidence=[*first_evidence(failed), *evidence_of_settings(asked, 1)],
        )


def _reason(notices: list[Notice]) -> str:
    """Return what the line of NCCL says is missing."""
    lacks = {
        "cumem": "cuMem is off (NCCL_CUMEM_ENABLE=0, an old driver, or a container that forbids it)",
        "gin": "GIN is not supported, which it needs between hosts",
        "gdr": "the driver has no GPUDirect RDMA for cuMem memory",
    }
    missing = [words for name, words in lacks.items() if any(value(notice, name) == 0 for notice in notices)]
    return "; ".join(missing) or "not in this log: cuMem, GIN or GPUDirect RDMA is missing on some rank"
