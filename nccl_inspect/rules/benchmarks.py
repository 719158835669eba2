"""What benchmarks and timings show."""

from collections.abc import Iterator

from nccl_inspect import bandwidth
from nccl_inspect.bandwidth import VERY_LOW, measure
from nccl_inspect.judging import cuda
from nccl_inspect.judging.check import Facts, Hit, value
from nccl_inspect.judging.impact import Estimate, cite
from nccl_inspect.judging.statements import is_propagated_error
from nccl_inspect.model.inventory import Measured
from nccl_inspect.util.wording import count


def bandwidth_low(facts: Facts) -> Iterator[Hit]:
    """Find the operation that is furthest behind what is expected of it; others are in the same state or better."""
    low = [entry for entry in measure(facts) if entry.is_below]
    worst = min(low, key=_ratio, default=None)
    if worst is None or worst.line is None:
        return
    others = [bandwidth.measurement_name(entry) for entry in low if entry is not worst]
    source = cite(f"{bandwidth.expected_range(worst)} GB/s", worst.what, worst.expected_source or "")
    paths, times = facts.job.paths, 1 / max(_ratio(worst), 1e-3)
    named = {
        "measured": bandwidth.describe_measurement(worst),
        "others": others[0] if len(others) == 1 else f"{len(others)} others" if others else "",
        "part": worst.part,
        "times": Estimate(f"{times:{'.2g' if times < 100 else '.0f'}}", (source,)),
        "severe": _ratio(worst) < VERY_LOW,
        "assumed": worst.is_assumed,
    }
    hosts, lines = worst.hosts or facts.hosts(), [worst.line, *paths.first_lines()[:1]]
    yield Hit([], named, facts.job.ranks_seen, hosts, lines, open_paths=paths)


def _ratio(entry: Measured) -> float:
    return 1.0 if entry.ratio is None else entry.ratio


def bandwidth_uneven(facts: Facts) -> Iterator[Hit]:
    """Find sizes that are far behind smaller ones: a switch of protocol costs a little, and larger ones recover."""
    uneven = [entry for entry in measure(facts) if entry.dips]
    if not uneven:
        return
    worst = max(uneven, key=lambda entry: (entry.falls, len(entry.dips)))
    before = max((row for row in worst.sizes if row.size < worst.dips[0].size), key=lambda row: row.gbps)
    named = {
        "what": bandwidth.measurement_name(worst),
        "falls": worst.falls,
        "several": len(worst.dips) > 1,
        "peak": bandwidth.rate_text(before.gbps),
        "size": bandwidth.size_text(before.size),
        "dips": bandwidth.describe_dips(worst),
        "several nodes": (worst.nodes or 2) > 1,
    }
    lines = [before.line, *(dip.line for dip in worst.dips)]
    yield Hit([], named, facts.job.ranks_seen, worst.hosts or facts.hosts(), lines)


def init_slow(facts: Facts) -> Iterator[Hit]:
    """Find the slowest communicator in NCCL's own timings (2.22 and later), if a phase took half of it."""
    least = 30.0  # seconds: large jobs need some, and lazily loaded kernels do
    timed = [(timing, comm) for comm in facts.job.communicators for timing in comm.timings if timing.total >= least]
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


_ENDS = (
    *("nccl-tests/test-nccl-failure", "nccl-tests/test-cuda-failure"),
    *("nccl-tests/test-timeout", "nccl-tests/test-too-few-gpus"),
)


def nccl_tests_failed(facts: Facts) -> Iterator[Hit]:
    """Find the test's last lines, where the log has no error of NCCL or the machine."""
    notices = facts.notices(*_ENDS)
    errors = [error for error in facts.errors(forced_ends=False) if not is_propagated_error(error)]
    if notices and all(error.production in _ENDS for error in errors):
        code = cuda.code_of_text(str(value(notices[0], "error")))
        named = {"cause": cuda.find_cause(code), "out of memory": code == cuda.OUT_OF_MEMORY}
        yield Hit(notices, named | cuda.find_fixes(code))


def wrong_results(facts: Facts) -> Iterator[Hit]:
    """Find the test's result, which does not name the faulty link or memory."""
    wrong = facts.notices("nccl-tests/test-wrong")
    failed = sum(value(notice, "wrong_count") for notice in wrong)
    lines = []
    if not wrong:  # the table without its last lines
        lines = [line for entry in measure(facts) for line in entry.wrong_lines]
        failed = len(lines)
    if shown := wrong or lines:
        named = {"checks": count(failed, "check"), "over P2P": facts.paths(transport="P2P")}
        yield Hit(named=named, ranks=facts.job.ranks_seen, hosts=facts.hosts(), evidence=shown)
