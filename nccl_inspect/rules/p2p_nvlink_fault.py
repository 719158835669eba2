"""GPUs connected by NVLink may not read each other's memory."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, value
from nccl_inspect.judging.impact import SHM
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find NCCL's own statement; it stops the job (src/graph/paths.cc)."""
    if broken := facts.notices("nccl/p2p-disabled-nvlink"):
        pairs = {tuple(sorted((value(notice, "gpu"), value(notice, "other_gpu")))) for notice in broken}
        yield Hit(broken, {"pairs": [f"GPUs {first} and {second}" for first, second in sorted(pairs)], "shm": SHM})
