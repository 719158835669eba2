"""Two ranks have no path between them."""

from nccl_inspect.judging.engine import Facts, Results, Rule, first_evidence
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, ranks_concerned, unset_steps
from nccl_inspect.util.wording import count, does

RULE = Rule(
    name="no-transport",
    category="intra-node path",
    title="No path between two ranks: P2P, SHM and NET are all disabled or impossible",
    shows=("no-path",),
)
_SWITCHES = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_NET_DISABLE_INTRA")


def judge(facts: Facts) -> Results:
    """Judge NCCL's own line."""
    failed = facts.notices("nccl/no-transport")
    if not failed:
        return
    switches = [*facts.enabled_settings(*_SWITCHES), *facts.user_settings("NCCL_P2P_LEVEL")]
    more = f", and {count(len(failed) - 1, 'pair')} more" if len(failed) > 1 else ""
    yield RULE.finding(
        f"two ranks have no path: {failed[0].message}{more}",
        cause=f"{as_shell(switches)} {does(len(switches), 'leave')} none"
        if switches
        else "unknown from this log; likely: "
        "settings disable P2P, SHM and the network, or containers on one host share neither "
        "their GPUs nor /dev/shm. NCCL uses the network inside a host only where it is faster than the path "
        "between the GPUs",
        impact="the connection fails, and the job stops",
        fix=[
            *unset_steps(switches),
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,P2P,SHM   # shows why each was rejected",
        ],
        confidence="likely" if switches else "certain",
        notices=failed,
        ranks=ranks_concerned(facts, failed, "rank", "peer_rank"),
        evidence=[*first_evidence(failed)[:2], *evidence_of_settings(switches, 1)[:3]],
        fatal=True,
    )
