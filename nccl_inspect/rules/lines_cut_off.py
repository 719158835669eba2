"""Lines that all end at the same column."""

from collections import Counter
from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.page_words import Hit

_SHAPES = 4
"""Lines of this many shapes do not end at the same column by chance."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find unrecognized lines most shapes of which are as long as the longest one."""
    unknown = facts.job.unrecognised
    lengths = Counter(len(shape.example.text) for shape in unknown)
    width = max(lengths, default=0)
    if lengths[width] >= max(_SHAPES, len(unknown) / 2):
        cut = [shape for shape in unknown if len(shape.example.text) == width]
        named = {"lines": sum(shape.count for shape in cut), "width": width}
        yield Hit(named=named, evidence=[shape.example for shape in cut])
