"""The program cannot find NCCL, or finds one that it was not built for."""

from collections.abc import Iterator

from nccl_inspect.judging import exceptions
from nccl_inspect.judging.engine import Effects, Facts
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit | Effects]:
    """Find the errors of PyTorch and the linker, unless NCCL is used later: then the program had a fallback."""
    notices = facts.errors_of_rule("nccl-lib-missing")
    used = {id(notice) for notice in notices if facts.job.communicators or exceptions.is_used_below(facts, notice)}
    yield Effects([notice for notice in notices if id(notice) in used])
    if failed := [notice for notice in notices if id(notice) not in used]:
        yield Hit(failed)
