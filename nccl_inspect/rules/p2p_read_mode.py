"""P2P connections in read mode."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.facts import evidence_of_settings, first_lines
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find read mode, NCCL's own choice for A100 pairs over NVLink (src/graph/paths.cc, 2.7 and later)."""
    if pairs := facts.paths(transport="P2P").where(lambda kind: "/read" in kind.detail):
        forced = [setting for setting in facts.settings("NCCL_P2P_READ_ENABLE") if setting.value not in ("0", "-2")]
        is_a100 = facts.platform is not None and (facts.platform.gpu or "").startswith("A100")
        named = {
            "forced": forced[0].value if forced else "",
            "known GPU": forced or (is_a100 and facts.hardware == "certain"),
        }
        yield Hit(named=named, evidence=[*first_lines(pairs)[:3], *evidence_of_settings(forced, 1)], paths=pairs)
