"""No algorithm and protocol is left for a collective."""

from nccl_inspect.judging.engine import Facts, Layer, Results, Rule, value
from nccl_inspect.util.patterns import later
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="no-algorithm",
    category="environment",
    layer=Layer.RESOURCE,
    title="No algorithm and protocol is left for a collective",
)
_SETTING = later(r"(NCCL_ALGO|NCCL_PROTO) was set to (.+?)\.(?= NCCL_|$)")
"""What 2.24 and later add (src/enqueue.cc); earlier releases used a ring where a setting did not fit."""
_CAN = {
    "AllReduce": "Ring, Tree, CollNet and NVLS",
    "AllGather": "Ring, PAT, CollNetDirect and NVLS",
    "ReduceScatter": "Ring, PAT, CollNetDirect and NVLS",
    "Broadcast": "Ring only",
    "Reduce": "Ring only",
}
"""The algorithms that NCCL has for each collective: src/graph/tuning.cc, 2.24 and later."""


def judge(facts: Facts) -> Results:
    """Judge NCCL's own line; collnet-unavailable judges requests for CollNet."""
    failed = [n for n in facts.notices("nccl/no-algorithm") if "collnet" not in str(value(n, "settings")).lower()]
    failed += facts.errors_of_rule(RULE.name)
    if not failed:
        return
    is_dead = facts.job.failed or not facts.is_over()
    function = value(failed[0], "function")
    named = dict(_SETTING.findall(str(value(failed[0], "settings"))))
    yield RULE.finding(
        f"NCCL has no algorithm left for {f'the collective {function}' if function else 'a collective'}",
        cause=_cause(function, named),
        impact="the collective fails" + (", and with it the job" if is_dead else "; the job ran to its end"),
        fix=[
            f"unset {' '.join(named or ('NCCL_ALGO', 'NCCL_PROTO'))}   # NCCL then chooses for each call",
            *(
                ['NCCL_ALGO="ring;allreduce:tree"   # 2.24 and later: a choice per collective']
                if "NCCL_ALGO" in named
                else []
            ),
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING   # shows what is allowed and what the tuner chooses",
        ],
        confidence="certain" if named else "possible",
        notices=failed,
        fatal=is_dead,
    )


def _cause(function: str | None, named: dict[str, str]) -> str:
    if not named:
        return (
            "unknown from this log; likely: "
            "NCCL_ALGO or NCCL_PROTO excludes everything (before 2.24 the line does not name them), a tuner "
            "plugin does, or the search for rings and trees found nothing"
        )
    words = listed(f"{name}={setting}" for name, setting in named.items())
    can = f"; for {function} NCCL has {_CAN[function]}" if function in _CAN else ""
    return f"{words} leaves no choice that this collective, its data type and the hardware support{can}"
