"""aws-ofi-nccl disables the protocols LL and LL128."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, first_evidence
from nccl_inspect.judging.facts import as_shell, evidence_of_settings
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find what a plugin set, and its reason: the echo that NCCL prints later looks like a user's setting."""
    forced = [setting for setting in facts.settings("NCCL_PROTO") if setting.source == "plugin"]
    if not forced:
        return
    weak = facts.notices("aws-ofi-nccl/ofi-gdr-not-supported")
    ordering = facts.notices("aws-ofi-nccl/ofi-simple-protocol")
    lacks_gdr = bool(weak) or any("(reason: GDR" in line.text for setting in forced for line in setting.evidence)
    yield Hit(
        named={"settings": as_shell(forced)},
        known=("without GPUDirect RDMA",) if lacks_gdr else ("out of order",) if ordering else (),
        ranks=facts.ranks_with(forced),
        hosts={host for setting in forced for host in setting.hosts},
        evidence=[*evidence_of_settings(forced, 1), *first_evidence([*weak, *ordering])[:2]],
    )
