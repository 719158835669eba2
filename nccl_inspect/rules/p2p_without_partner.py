"""A rank waits in a send or receive that its peer does not match: the flight recorder shows both sides."""

from collections.abc import Iterator

from nccl_inspect.artifacts.causes import NO_PARTNER
from nccl_inspect.judging.check import Facts, Hit
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.facts import hosts_with


def find(facts: Facts) -> Iterator[Hit]:
    """Find sends and receives that are pending on one side only, counted where the other side has all its calls."""
    for still in flight_recorder.standstills(facts, NO_PARTNER):
        culprits, call = flight_recorder.ranks_of(still.culprits), still.waiting[0].call
        missing = culprits | set(still.silent)
        shown = [line for parts in (still.waiting, still.culprits) for line in flight_recorder.lines(facts, parts, 2)]
        yield Hit(
            named={
                "waiting": flight_recorder.ranks_of(still.waiting),
                "operation": still.operation,
                "group": still.group.label,
                "missing": missing,
                "one": len(missing) == 1,
                "number": call.nth if call and still.made is not None else None,
                "others": culprits or set(still.silent),
                "made": still.made or "none",
                "place": flight_recorder.list_frames(still.waiting),
                "last": flight_recorder.list_frames(still.culprits),
                "open": flight_recorder.not_known(still),
                "sure": flight_recorder.confidence(still),
            },
            ranks=missing,
            hosts=hosts_with(facts.job, missing),
            evidence=shown,
        )
