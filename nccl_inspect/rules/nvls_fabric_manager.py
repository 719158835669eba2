"""Reduction inside the NVSwitch could not be set up."""

from collections.abc import Iterator

from nccl_inspect.judging.ends import is_last
from nccl_inspect.judging.engine import Facts, value
from nccl_inspect.judging.facts import ranks_in
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.hardware.peer_to_peer import is_of_fabric
from nccl_inspect.judging.page_words import Hit

_NO_MEMORY = 2


def find(facts: Facts) -> Iterator[Hit]:
    """Find failed multicast calls: 2.27 and 2.28 continue without NVLS, other releases stop.

    Also a log that ends where memory is bound to the multicast group, which waits for all ranks (transport/nvls.cc).
    """
    calls = [failure.notice for failure in cuda.failures(facts) if is_of_fabric(failure)]
    failed = [*calls, *facts.notices("nccl/nvls-bind-failed"), *facts.notices("nccl/multicast-fault")]
    given_up = facts.notices("nccl/nvls-bind-given-up")
    if notices := [*failed, *given_up]:
        yield Hit(
            notices,
            {
                "first_line": notices[0].message.splitlines()[0],
                "out of memory": {value(notice, "code") for notice in notices} == {_NO_MEMORY},
                "alone": set() if failed else _others(facts, ranks_in(given_up)),
            },
        )
    elif not (facts.job.going_on or facts.job.failed or facts.errors(forced_ends=False)):
        bound = facts.notices("nccl/nvls-bind")
        if last := [notice for notice in bound if any(is_last(facts, line) for line in notice.evidence)]:
            yield Hit(last, {"open": True})


def _others(facts: Facts, ranks: set[int]) -> set[int]:
    """The other ranks of the hosts with these ranks, as far as their logs are here."""
    hosts = [set(host.ranks) for host in facts.job.hosts]
    return {rank for host in hosts if host & ranks for rank in host & set(facts.job.ranks_seen)} - ranks
