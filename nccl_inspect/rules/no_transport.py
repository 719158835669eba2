"""Two ranks have no path between them."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, first_evidence
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, ranks_concerned, unset_steps
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.wording import count, does

_SWITCHES = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_NET_DISABLE_INTRA")


def find(facts: Facts) -> Iterator[Hit]:
    """Find NCCL's own line, and the settings that may lead to it."""
    failed = facts.notices("nccl/no-transport")
    if not failed:
        return
    switches = [*facts.enabled_settings(*_SWITCHES), *facts.user_settings("NCCL_P2P_LEVEL")]
    yield Hit(
        failed,
        named={
            "more": f", and {count(len(failed) - 1, 'pair')} more" if len(failed) > 1 else "",
            "settings": f"{as_shell(switches)} {does(len(switches), 'leave')}",
            "unset": "".join(unset_steps(switches)),
        },
        known=("set",) if switches else (),
        ranks=ranks_concerned(facts, failed, "rank", "peer_rank"),
        evidence=[*first_evidence(failed)[:2], *evidence_of_settings(switches, 1)[:3]],
    )
