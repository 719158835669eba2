"""A benchmark measured less bandwidth than the hardware of the job provides."""

from collections.abc import Iterator

from nccl_inspect import bandwidth
from nccl_inspect.bandwidth import VERY_LOW, measure
from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.facts import first_lines
from nccl_inspect.judging.impact import Estimate, cited
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.model.measured import Measured


def find(facts: Facts) -> Iterator[Hit]:
    """Find the operation that is furthest behind what is expected of it; others are in the same state or better."""
    low = [entry for entry in measure(facts) if entry.is_below]
    worst = min(low, key=_ratio, default=None)
    if worst is None or worst.line is None:
        return
    others = [bandwidth.measurement_name(entry) for entry in low if entry is not worst]
    source = cited(f"{bandwidth.expected_range(worst)} GB/s", worst.what, worst.expected_source or "")
    paths, times = facts.job.paths, 1 / max(_ratio(worst), 1e-3)
    named = {
        "measured": bandwidth.describe_measurement(worst),
        "others": others[0] if len(others) == 1 else f"{len(others)} others" if others else "",
        "part": worst.part,
        "times": Estimate(f"{times:{'.2g' if times < 100 else '.0f'}}", (source,)),
        "severe": _ratio(worst) < VERY_LOW,
    }
    hosts, lines = worst.hosts or facts.hosts(), [worst.line, *first_lines(paths)[:1]]
    yield Hit([], named, (), facts.job.ranks_seen, hosts, lines, open_paths=paths)


def _ratio(entry: Measured) -> float:
    return 1.0 if entry.ratio is None else entry.ratio
