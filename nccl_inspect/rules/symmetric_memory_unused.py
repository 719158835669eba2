"""The program asks for symmetric memory or communication by the GPU, and NCCL silently does without."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, first_evidence, value
from nccl_inspect.judging.facts import evidence_of_settings
from nccl_inspect.judging.page_words import Hit

_OFF = ("0", "-1", "none")
_LACKS = {
    "cumem": "cuMem is off (NCCL_CUMEM_ENABLE=0, an old driver, or a container that forbids it)",
    "gin": "GIN is not supported, which it needs between hosts",
    "gdr": "the driver has no GPUDirect RDMA for cuMem memory",
}


def find(facts: Facts) -> Iterator[Hit]:
    """Find windows that were registered without effect, and a GIN that a setting asks for and no plugin provides."""
    if registered := facts.notices("nccl/symmetric-registration-unsupported"):
        stated = facts.notices("nccl/symmetric-unsupported")
        missing = [words for name, words in _LACKS.items() if any(value(notice, name) == 0 for notice in stated)]
        named = {"reasons": "; ".join(missing), "stated": stated}
        yield Hit(registered, named, evidence=first_evidence([*registered, *stated]))
    asked = [one for one in facts.user_settings("NCCL_GIN_TYPE", "NCCL_GIN_ENABLE") if one.value.lower() not in _OFF]
    failed = facts.plugin("GIN", "failed")
    if asked and failed and not facts.plugin("GIN", "assigned", "initialised"):
        yield Hit(named={"asked": asked}, evidence=[*first_evidence(failed), *evidence_of_settings(asked, 1)])
