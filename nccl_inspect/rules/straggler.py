"""A rank repeatedly arrives last at the collectives of its group, according to PyTorch's flight recorder."""

from collections.abc import Iterator

from nccl_inspect.judging.check import Evidence, Facts, Hit
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.facts import hosts_with
from nccl_inspect.util.wording import ranks_word

_MOST = 3
"""Ranks that are reported; if there are more, the time is lost elsewhere."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find who is late, by how long the calls took on each rank, if PyTorch measured it."""
    dumps = flight_recorder.dumps_of(facts)
    if len(dumps) < 2:
        return
    from nccl_inspect.artifacts import stragglers  # most logs have no dumps

    for late in stragglers.find_stragglers(dumps)[:_MOST]:
        others = set(late.group.ranks) - {late.rank}
        yield Hit(
            named={
                "rank": late.rank,
                "late": f"{late.late} of {late.compared}",
                "group": late.group.label,
                "others": others,
                "who": f"the other {len(others)} ranks" if len(others) > 1 else ranks_word(others),
                "share": f"{late.share:.0%}",
                "gap": f"{late.gap_ms:.0f} ms",
            },
            ranks={late.rank},
            hosts=hosts_with(facts.job, {late.rank}),
            evidence=[
                Evidence(
                    call.dump,
                    call.order,
                    f"rank {call.rank}: work {call.seq} of group {late.group.label} took {call.milliseconds:.1f} ms",
                )
                for call in late.calls
            ],
        )
