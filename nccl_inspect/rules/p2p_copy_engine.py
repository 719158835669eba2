"""P2P connections through the copy engines."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.facts import evidence_of_settings, first_lines
from nccl_inspect.judging.impact import MEASURED, Rate
from nccl_inspect.judging.page_words import Hit

_COPIED = Rate(122, 122, "all-reduce of 1 GiB on 2 H200", MEASURED)
_WRITTEN = Rate(327, 327, _COPIED.what, MEASURED)


def find(facts: Facts) -> Iterator[Hit]:
    """Find such paths: only the setting chooses them (useMemcpy in src/transport/p2p.cc, 2.13 and later)."""
    if pairs := facts.paths(transport="P2P").where(lambda kind: kind.detail.endswith("/CE")):
        shown = [*first_lines(pairs)[:3], *evidence_of_settings(facts.settings("NCCL_P2P_USE_CUDA_MEMCPY"), 1)]
        yield Hit(named={"copied": _COPIED, "written": _WRITTEN}, evidence=shown, paths=pairs)
