"""Two ranks of a communicator use the same GPU."""

from collections.abc import Iterator

from nccl_inspect.event.base import is_named
from nccl_inspect.event.types import BootstrapInterface
from nccl_inspect.judging.engine import Facts, value
from nccl_inspect.judging.facts import global_ranks, ranks_concerned
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.model.versions import order
from nccl_inspect.util.wording import ranks_word

_SHARING = ("NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_HOSTID")
"""With these, several ranks may share a GPU, or host names do not identify hosts."""
_DISTINGUISHES_MIG = (2, 30)
"""The first release that distinguishes MIG instances and supports ranks that share a GPU."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find NCCL's own check: up to 2.29 it names the ranks, from 2.30 on it does not."""
    errors = facts.errors_of_rule("duplicate-gpu")
    if not errors:
        yield from _find_in_init_lines(facts)
        return
    pairs = {
        (*sorted((value(notice, "rank"), value(notice, "other_rank"))), value(notice, "bus_id"))
        for notice in errors
        if value(notice, "other_rank") is not None
    }
    words = [f"ranks {one} and {other} on the GPU with bus id {bus}" for one, other, bus in sorted(pairs, key=str)]
    yield Hit(errors, {"pairs": words}, ranks=ranks_concerned(facts, errors, "rank", "other_rank"))


def _find_in_init_lines(facts: Facts) -> Iterator[Hit]:
    """Find init lines with one host and bus id for two ranks, before NCCL itself compares them.

    If NCCL built the communicator, there is no conflict: two machines have the same name.
    """
    if facts.enabled_settings(*_SHARING) or any(order(text) >= _DISTINGUISHES_MIG for text in facts.job.nccl_versions):
        return
    host_of = {rank: host.name for host in facts.job.hosts for rank in host.ranks}
    for comm in filter(lambda comm: facts.none_initialized([comm]), facts.job.communicators):
        users: dict[tuple[str | None, str], set[int]] = {}
        for rank in global_ranks(comm, comm.started):
            gpu = facts.job.gpus.get(rank)
            host = host_of.get(rank)  # machines of one type have the same bus ids: a host without a name may be several
            if gpu is not None and gpu.bus_id is not None and (is_named(host) or comm.nnodes == 1):
                users.setdefault((host, gpu.bus_id), set()).add(rank)
        shared = {key: ranks for key, ranks in users.items() if len(ranks) > 1 and not _is_two_machines(facts, key[0])}
        if shared:
            words = [
                f"{ranks_word(ranks)} on the GPU with bus id {bus}"
                for (_, bus), ranks in sorted(shared.items(), key=str)
            ]
            yield Hit(
                [], {"shared": words}, (), set().union(*shared.values()), [host for host, _ in shared], comm.evidence
            )
            return


def _is_two_machines(facts: Facts, host: str | None) -> bool:
    """Whether processes of one host name have several addresses on one interface."""
    by_interface: dict[str, set[str]] = {}
    for notice in facts.with_event(BootstrapInterface):
        event = notice.event
        if isinstance(event, BootstrapInterface) and event.address and host in notice.hosts:
            by_interface.setdefault(event.interface, set()).add(event.address)
    return any(len(addresses) > 1 for addresses in by_interface.values())
