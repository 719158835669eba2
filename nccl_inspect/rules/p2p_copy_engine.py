"""P2P connections through the copy engines."""

from nccl_inspect.judging.engine import Facts, Results, Rule
from nccl_inspect.judging.facts import evidence_of_settings, first_lines
from nccl_inspect.judging.impact import MEASURED, Rate, estimate
from nccl_inspect.util.wording import count

RULE = Rule(
    name="p2p-copy-engine",
    category="intra-node path",
    severity="warning",
    title="P2P connections use the copy engines: NCCL_P2P_USE_CUDA_MEMCPY",
    may_cause=("slow",),
)
_COPIED = Rate(122, 122, "all-reduce of 1 GiB on 2 H200", MEASURED)
_WRITTEN = Rate(327, 327, _COPIED.what, MEASURED)


def judge(facts: Facts) -> Results:
    """Only the setting chooses the copy engines (useMemcpy in src/transport/p2p.cc, 2.13 and later)."""
    pairs = facts.paths(transport="P2P").where(lambda kind: kind.detail.endswith("/CE"))
    if pairs:
        yield RULE.finding(
            f"{count(len(pairs), 'P2P pair')} through the copy engines, which NCCL_P2P_USE_CUDA_MEMCPY asks for",
            cause="NCCL_P2P_USE_CUDA_MEMCPY=1 is set: each piece is copied by cudaMemcpyAsync, which a thread of the "
            "CPU starts, instead of by the kernel of the collective",
            impact=estimate(f"{_COPIED} instead of {_WRITTEN} bus bandwidth; a tenth at 16 MiB", _COPIED, _WRITTEN),
            fix=["unset NCCL_P2P_USE_CUDA_MEMCPY"],
            evidence=[*first_lines(pairs)[:3], *evidence_of_settings(facts.settings("NCCL_P2P_USE_CUDA_MEMCPY"), 1)],
            paths=pairs,
        )
