"""Lines of the same process that appear in the log more than once."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.wording import count


def find(facts: Facts) -> Iterator[Hit]:
    """Find the copies that the model left out."""
    if copies := facts.job.repeated:
        yield Hit(evidence=copies, named={"processes": count(len(copies), "process", "es")})
