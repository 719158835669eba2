"""All ranks made a call that did not complete on all of them: the flight recorder rules out the program."""

from collections.abc import Iterator

from nccl_inspect.artifacts.causes import PARTLY, UNFINISHED
from nccl_inspect.judging.check import Facts, Hit
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.facts import hosts_with


def find(facts: Facts) -> Iterator[Hit]:
    """Find calls that all ranks made alike: the device, the network or earlier work blocks them."""
    if flight_recorder.is_running(facts):
        yield Hit(known=("running",))
    for standstill in flight_recorder.standstills(facts, PARTLY, UNFINISHED):
        stuck = flight_recorder.ranks_of(standstill.culprits)  # all ranks whose call is still open
        call = standstill.culprits[0].call
        yield Hit(
            named={
                "stuck": stuck,
                "finished": flight_recorder.ranks_of(standstill.waiting),
                "call": flight_recorder.work(call, standstill.group, standstill.seq),
            },
            known=(
                *(("pair",) if call and call.is_p2p else ()),
                *(("partly",) if standstill.kind == PARTLY else ()),
            ),
            ranks=stuck,
            hosts=hosts_with(facts.job, stuck),
            evidence=[
                *flight_recorder.lines(facts, standstill.culprits, 3),
                *flight_recorder.lines(facts, standstill.waiting, 2),
            ],
        )
