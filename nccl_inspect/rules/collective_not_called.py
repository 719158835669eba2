"""A rank did not make a call that the others are waiting in, according to PyTorch's flight recorder."""

from collections.abc import Iterator

from nccl_inspect.artifacts.causes import MISSING
from nccl_inspect.judging.check import Facts, Hit
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.facts import hosts_with


def find(facts: Facts) -> Iterator[Hit]:
    """Find in the dumps of all ranks which wait in a call, and which never made it and wait for nobody."""
    for standstill in flight_recorder.standstills(facts, MISSING):
        absent = flight_recorder.ranks_of(standstill.culprits)
        missing = absent or set(standstill.unknown)
        last_calls = [
            f"the last call of rank {part.rank} was {flight_recorder.describe_call(part.call)}"
            + (f" from {part.call.frame}" if part.call.frame else "")
            + ", which is complete"
            if part.call
            else f"rank {part.rank} has made no call at all"
            for part in standstill.culprits[:3]
        ]
        more = (flight_recorder.not_known(standstill), flight_recorder.chain(facts, standstill))
        yield Hit(
            named={
                "absent": absent,
                "missing": missing,
                "waiting": flight_recorder.ranks_of(standstill.waiting),
                "call": flight_recorder.work(standstill.waiting[0].call, standstill.group, standstill.seq),
                "last": "; ".join(last_calls),
                "more": ". ".join(filter(None, more)),
                "place": min(
                    (part.call.frame for part in standstill.culprits if part.call and part.call.frame), default=""
                ),
                "dumps": list(flight_recorder.fixes_of_dumps(standstill)),
            },
            known=(*(("silent",) if standstill.silent else ()), *(("one",) if len(missing) == 1 else ())),
            ranks=missing,
            hosts=hosts_with(facts.job, missing),
            evidence=[
                *flight_recorder.lines(facts, standstill.waiting, 2),
                *flight_recorder.lines(facts, standstill.culprits, 2),
            ],
            confidence=flight_recorder.confidence(standstill),
        )
