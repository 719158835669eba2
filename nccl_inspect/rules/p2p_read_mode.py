"""P2P connections in read mode."""

from nccl_inspect.judging.engine import Facts, Finding, Results, Rule
from nccl_inspect.judging.facts import evidence_of_settings, first_lines
from nccl_inspect.judging.impact import READ_OF_4_H200, WRITTEN_OF_4_H200, estimate
from nccl_inspect.judging.remedies import NOTHING
from nccl_inspect.model.job import Selection, Setting
from nccl_inspect.util.wording import count

RULE = Rule(
    name="p2p-read-mode",
    category="intra-node path",
    severity="info",
    title="P2P connections are in read mode: the receiver pulls",
)


def judge(facts: Facts) -> Results:
    """Read mode is NCCL's own choice for A100 pairs over NVLink (src/graph/paths.cc, 2.7 and later)."""
    pairs = facts.paths(transport="P2P").where(lambda kind: "/read" in kind.detail)
    if not pairs:
        return
    forced = [setting for setting in facts.settings("NCCL_P2P_READ_ENABLE") if setting.value not in ("0", "-2")]
    yield _forced(pairs, forced) if forced else _chosen(facts, pairs)


def _forced(pairs: Selection, settings: list[Setting]) -> Finding:
    return RULE.finding(
        f"{count(len(pairs), 'P2P pair')} in read mode, forced by NCCL_P2P_READ_ENABLE",
        cause=f"NCCL_P2P_READ_ENABLE={settings[0].value} is set",
        impact=estimate(
            f"{READ_OF_4_H200} instead of {WRITTEN_OF_4_H200} bus bandwidth", READ_OF_4_H200, WRITTEN_OF_4_H200
        ),
        fix=["unset NCCL_P2P_READ_ENABLE"],
        severity="warning",
        evidence=[*first_lines(pairs)[:3], *evidence_of_settings(settings, 1)],
        paths=pairs,
    )


def _chosen(facts: Facts, pairs: Selection) -> Finding:
    return RULE.finding(
        f"{count(len(pairs), 'P2P pair')} in read mode",
        cause="NCCL's own choice for two A100 (compute capability 8.0) connected by NVLink; the path is direct and "
        "good",
        impact="none known",
        fix=[NOTHING, "NCCL_P2P_READ_ENABLE=0   # measure before blaming read mode"],
        severity="info",
        confidence=facts.hardware if _is_a100(facts) else "likely",
        evidence=first_lines(pairs)[:3],
        paths=pairs,
    )


def _is_a100(facts: Facts) -> bool:
    return facts.platform is not None and (facts.platform.gpu or "").startswith("A100")
