"""aws-ofi-nccl disables the protocols LL and LL128."""

from nccl_inspect.judging.engine import Facts, Results, Rule, first_evidence
from nccl_inspect.judging.facts import as_shell, evidence_of_settings

RULE = Rule(
    name="protocol-forced-by-plugin",
    category="plugins",
    severity="info",
    title="A plugin, not the user, forces NCCL's protocol",
)


def judge(facts: Facts) -> Results:
    """Name the plugin and its reason: the echo that NCCL prints later looks like a user's setting."""
    forced = [setting for setting in facts.settings("NCCL_PROTO") if setting.source == "plugin"]
    if not forced:
        return
    weak = facts.notices("aws-ofi-nccl/ofi-gdr-not-supported")
    ordering = facts.notices("aws-ofi-nccl/ofi-simple-protocol")
    lacks_gdr = bool(weak) or any("(reason: GDR" in line.text for setting in forced for line in setting.evidence)
    yield RULE.finding(
        f"aws-ofi-nccl sets {as_shell(forced)}",
        cause="the provider does not support GPUDirect RDMA; LL could then read data before it is complete"
        if lacks_gdr
        else "the device does not guarantee to deliver bytes in order, which LL and LL128 rely on"
        if ordering
        else "LL and LL128 are not safe over this network",
        impact="small messages are slower, also within hosts; large ones use Simple anyway",
        fix=[
            "EFA with GPUDirect RDMA enables these protocols again: see gdr-disabled if the machine supports it."
            if lacks_gdr
            else "Nothing to fix: expected with SENDRECV (p4d and older).",
            "Do not override it with NCCL_PROTO: results may silently be wrong.",
        ],
        ranks=facts.ranks_with(forced),
        hosts={host for setting in forced for host in setting.hosts},
        evidence=[*evidence_of_settings(forced, 1), *first_evidence([*weak, *ordering])[:2]],
    )
