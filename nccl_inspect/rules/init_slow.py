"""The initialisation of a communicator took long, most of it in one phase."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.page_words import Hit

_LONG = 30.0
"""Seconds: large jobs need some, and lazily loaded kernels do."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find the slowest communicator in NCCL's own timings (2.22 and later), if a phase took half of it."""
    timed = [(timing, comm) for comm in facts.job.communicators for timing in comm.timings if timing.total >= _LONG]
    for timing, comm in sorted(timed, key=lambda pair: -pair[0].total)[:1]:
        phase = max(timing.phases, key=timing.phases.__getitem__, default="")
        seconds = timing.phases.get(phase, 0.0)
        others = [other.phases.get(phase, 0.0) for other in comm.timings if other is not timing]
        rank = comm.ranks[timing.rank] if timing.rank < len(comm.ranks) else None
        if seconds >= timing.total / 2:
            yield Hit(
                named={
                    "nranks": comm.nranks,
                    "total": f"{timing.total:.0f}",
                    "seconds": f"{seconds:.0f}",
                    "phase": phase,
                    "others": f"{min(others):.0f} to {max(others):.0f}" if others else "",
                },
                ranks=[] if rank is None else [rank],
                evidence=[timing.evidence] if timing.evidence else [],
            )
