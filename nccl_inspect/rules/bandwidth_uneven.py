"""Bandwidth that falls or jumps from one message size to the next."""

from collections.abc import Iterator

from nccl_inspect import bandwidth
from nccl_inspect.bandwidth import measure
from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
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
    yield Hit([], named, (), facts.job.ranks_seen, worst.hosts or facts.hosts(), lines)
