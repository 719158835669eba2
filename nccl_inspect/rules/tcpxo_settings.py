"""GPUDirect-TCPXO runs with settings that reduce performance and differ from Google's profile."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, first_evidence, value
from nccl_inspect.judging.facts import evidence_of_settings, hosts_in, ranks_in, unset_steps
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find logging of every transfer, and control messages that do not use LLCM."""
    logged = facts.enabled_settings("NCCL_FASTRAK_ENABLE_HOTPATH_LOGGING")
    without = [notice for notice in facts.notices("tcpxo/fastrak-dxs-starting") if value(notice, "llcm") == "false"]
    if logged or without:
        yield Hit(
            named={"unset": "".join(unset_steps(logged))},
            known=("logged only",) if not without else ("without LLCM only",) if not logged else (),
            ranks=facts.ranks_with(logged) | ranks_in(without),
            hosts=hosts_in(without),
            evidence=[*evidence_of_settings(logged), *first_evidence(without)],
        )
