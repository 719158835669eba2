"""GPUDirect-TCPXO runs with settings that reduce performance and differ from Google's profile."""

from nccl_inspect.judging.engine import Facts, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import evidence_of_settings, hosts_in, ranks_in, unset_steps

RULE = Rule(
    name="tcpxo-settings",
    category="environment",
    cloud="GCP",
    severity="info",
    title="Settings of GPUDirect-TCPXO reduce performance",
    shows=("setting",),
)
_HOTPATH = "NCCL_FASTRAK_ENABLE_HOTPATH_LOGGING"
_LLCM = "NCCL_FASTRAK_USE_LLCM"
_PROFILE = "source /usr/local/nvidia/lib64/nccl-env-profile.sh   # Google's settings; in the job's container, before it"


def judge(facts: Facts) -> Results:
    """Judge logging of every transfer, and control messages that do not use LLCM."""
    hotpath = facts.enabled_settings(_HOTPATH)
    without = [notice for notice in facts.notices("tcpxo/fastrak-dxs-starting") if value(notice, "llcm") == "false"]
    if not hotpath and not without:
        return
    deviations = [
        *([f"{_HOTPATH}=1 logs every transfer"] if hotpath else []),
        *([f"{_LLCM} is off"] if without else []),
    ]
    yield RULE.finding(
        f"GPUDirect-TCPXO settings differ from Google's profile: {', '.join(deviations)}",
        cause="the variable is set to this value"
        if hotpath and not without
        else "Google's profile (nccl-env-profile.sh), which sets it, was not sourced before the job, or not everywhere",
        impact="each transfer takes more CPU time: small messages are slower",
        fix=[*unset_steps(hotpath), _PROFILE],
        confidence="certain" if hotpath else "likely",
        ranks=facts.ranks_with(hotpath) | ranks_in(without),
        hosts=hosts_in(without),
        evidence=[*evidence_of_settings(hotpath), *first_evidence(without)],
    )
