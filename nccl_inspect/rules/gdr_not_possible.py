"""Network paths without GPUDirect RDMA on a machine type that does not support it."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.networks.gdr_use import lacking, paths_without_gdr
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find what other libraries say of peer memory, and paths of a machine that lacks it."""
    if stated := facts.errors_of_rule("gdr-not-possible"):
        yield Hit(stated, known=("stated",))
    paths = paths_without_gdr(facts)
    if paths and (lacks := lacking(facts)):
        yield Hit([], {"machine": lacks[0], "source": lacks[1]}, paths=paths)
