"""Ranks wait for each other in different process groups: the flight recorder shows the cycle."""

from collections.abc import Iterator

from nccl_inspect.artifacts.causes import CYCLE
from nccl_inspect.judging.check import Facts, Hit
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.facts import hosts_with
from nccl_inspect.util.wording import capitalize, ranks_word


def find(facts: Facts) -> Iterator[Hit]:
    """Find calls in which ranks wait for each other in a cycle."""
    for standstill in flight_recorder.standstills(facts, CYCLE):
        ring = [part for part in standstill.culprits if part.call]
        odd = set(standstill.odd)
        waits = [
            f"rank {part.rank} waits for rank {after.rank} in {flight_recorder.operation(part.call.operation)} of "
            f"group {flight_recorder.label(facts, part)}"
            for part, after in zip(ring, [*ring[1:], *ring[:1]], strict=True)
            if part.call
        ]
        named = {
            "waits": waits,
            "odd": capitalize(ranks_word(odd)) if odd else "",
            "places": flight_recorder.list_frames(ring),
        }
        ranks = odd or flight_recorder.ranks_of(ring)
        yield Hit([], named, (), ranks, hosts_with(facts.job, ranks), flight_recorder.lines(facts, ring, 4))
