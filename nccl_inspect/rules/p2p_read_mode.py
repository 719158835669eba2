"""P2P connections in read mode."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_lines
from nccl_inspect.judging.impact import READ_OF_4_H200, WRITTEN_OF_4_H200, estimate
from nccl_inspect.judging.remedies import NOTHING
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.util.wording import count

RULE = Rule(
    name="p2p-read-mode",
    category="intra-node path",
    severity="info",
    title="P2P connections are in read mode: the receiver pulls",
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Read mode is NCCL's own choice for A100 pairs over NVLink (src/graph/paths.cc, 2.7 and later)."""
    pairs = facts.paths(transport="P2P").where(lambda kind: "/read" in kind.detail)
    if not pairs:
        return
    forced = [setting for setting in facts.settings("NCCL_P2P_READ_ENABLE") if setting.value not in ("0", "-2")]
    yield RULE.finding(
        f"{count(len(pairs), 'P2P pair')} in read mode" + (", forced by NCCL_P2P_READ_ENABLE" if forced else ""),
        cause=f"NCCL_P2P_READ_ENABLE={forced[0].value} is set"
        if forced
        else "NCCL's own choice for two A100 (compute capability 8.0) connected by NVLink; the path is direct and good",
        impact=estimate(
            f"{READ_OF_4_H200} instead of {WRITTEN_OF_4_H200} bus bandwidth", READ_OF_4_H200, WRITTEN_OF_4_H200
        )
        if forced
        else "none known",
        fix=["unset NCCL_P2P_READ_ENABLE"]
        if forced
        else [NOTHING, "NCCL_P2P_READ_ENABLE=0   # measure before blaming read mode"],
        severity="warning" if forced else "info",
        confidence="certain" if forced else facts.hardware if _is_a100(facts) else "likely",
        evidence=[*first_lines(pairs)[:3], *(line for setting in forced for line in setting.evidence[:1])],
        paths=pairs,
    )


def _is_a100(facts: Facts) -> bool:
    return facts.platform is not None and (facts.platform.gpu or "").startswith("A100")
