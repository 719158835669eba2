"""Variables on which ranks must agree, and what breaks if they do not: a table.

Based on the sources of 2.30.7: each rank decides from its own environment which transport it uses towards a peer
(``p2pCanConnect``, ``shmCanConnect``), which network it opens, and which algorithm a collective uses.
"""

from __future__ import annotations

from collections.abc import Collection

from nccl_inspect.event.base import is_named
from nccl_inspect.event.types import BootstrapInterface
from nccl_inspect.judging import cuda
from nccl_inspect.judging.connecting import REFUSED, failed_connections, retried_connections
from nccl_inspect.judging.ends import process_ends
from nccl_inspect.judging.facts import Facts, global_ranks
from nccl_inspect.model.job import Notice, Setting
from nccl_inspect.util.grouping import group_sets
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import ranks_word


@frozen
class Agreement(Frozen):
    """A variable on which ranks must agree."""

    name: str
    effect: str = ""
    """What ranks that differ then use differently: ``transport``, ``network`` or ``address``; empty if they only wait
    for each other or are slow, and no error names it."""
    on_host: bool = False
    """May differ between hosts, but not between the ranks of a host."""
    is_choice: bool = False
    """A launcher may give each rank its own device on purpose: harmless if the ranks connect."""
    echoed: bool = False
    """Every rank that has it prints it before its initialization completes: no line means not set."""
    hidden_by: str = ""
    """A variable that makes NCCL ignore this one."""


AGREEMENTS = (
    Agreement("NCCL_ALGO", echoed=True),
    Agreement("NCCL_PROTO", echoed=True),
    Agreement("NCCL_MAX_NCHANNELS", echoed=True),
    Agreement("NCCL_MIN_NCHANNELS", echoed=True),
    Agreement("NCCL_MAX_CTAS"),
    Agreement("NCCL_MIN_CTAS"),
    Agreement("NCCL_BUFFSIZE", echoed=True),
    Agreement("NCCL_NTHREADS", echoed=True),
    Agreement("NCCL_CUMEM_ENABLE", "transport", echoed=True),
    Agreement("NCCL_CUMEM_HOST_ENABLE", "transport"),
    Agreement("NCCL_NVLS_ENABLE", echoed=True),
    Agreement("NCCL_COMM_ID", "address"),
    Agreement("NCCL_NET", "network"),
    Agreement("NCCL_NET_PLUGIN", "network"),
    Agreement("NCCL_IB_DISABLE", "network"),
    Agreement("NCCL_PXN_DISABLE"),
    Agreement("NCCL_CROSS_NIC"),
    Agreement("NCCL_COLLNET_ENABLE"),
    Agreement("NCCL_NET_GDR_LEVEL"),
    Agreement("NCCL_P2P_DISABLE", "transport", on_host=True, echoed=True),
    Agreement("NCCL_P2P_LEVEL", "transport", on_host=True, echoed=True, hidden_by="NCCL_P2P_DISABLE"),
    Agreement("NCCL_SHM_DISABLE", "transport", on_host=True),
    Agreement("NCCL_SOCKET_IFNAME", "address", on_host=True, is_choice=True),
    Agreement("NCCL_IB_HCA", "network", on_host=True, is_choice=True),
)
"""Without ``on_host``, different values on any two ranks break or slow down a communicator."""


def errors_of(facts: Facts, effect: str, ranks: Collection[int]) -> list[Notice]:
    """Return the errors in the log that such a disagreement leads to; none if other CUDA calls failed as well.

    Where there are none, a process may have crashed on what it got: its connection to or from these ranks, which differ
    from the others, uses another transport in each direction.
    """
    if effect != "transport":
        return [*failed_connections(facts, *REFUSED), *retried_connections(facts, *REFUSED)] if effect else []
    # CUDA calls in these files refuse what a rank with another transport sent.
    files = ("transport/p2p.cc", "transport/shm.cc", "proxy.cc", "misc/shmutils.cc")
    failures = [(one.code in cuda.NOT_SHARED and str(one.file).endswith(files), one) for one in cuda.failures(facts)]
    errors = [*facts.with_role("handle-refused"), *(failure.notice for _, failure in failures)]
    if errors and all(is_ours for is_ours, _ in failures):
        return errors
    over_p2p, over_shm = (set(facts.paths(transport=way).distinct("src", "dst")) for way in ("P2P", "SHM"))
    ends = {rank for pair in over_p2p if pair[::-1] in over_shm and not set(ranks).isdisjoint(pair) for rank in pair}
    return [end.notice for end in process_ends(facts) if end.is_crash and end.ranks and ends.issuperset(end.ranks)]


def ranks_without(facts: Facts, agreement: Agreement, setting: Setting) -> set[int]:
    """Return the ranks without a setting that every rank with it prints, on the same hosts if that matters."""
    others = ranks_with_full_start(facts) - set(setting.ranks or ())
    others -= facts.ranks_with(facts.settings(agreement.hidden_by))
    if not agreement.on_host:
        return others
    return {rank for host in facts.job.hosts if host.name in setting.hosts for rank in host.ranks} & others


def ranks_with_full_start(facts: Facts) -> set[int]:
    """Return the ranks whose log is complete up to the end of an initialization: a variable it lacks is not set.

    If the beginning of a log was cut off, each rank lacks different lines. A process prints some variables only for
    its first communicator, that of all ranks.
    """
    comms = facts.job.communicators
    completed = {rank for comm in comms for rank in global_ranks(comm, comm.completed)}
    # Until 2.21 a rank connects before its initialization is complete.
    completed |= {rank for (rank,) in facts.job.paths.distinct("src")}
    announced = {rank for comm in comms if comm.id == "world" for rank in global_ranks(comm, comm.announced)}
    return completed & (announced | ranks_with_interface(facts))


def ranks_with_interface(facts: Facts) -> set[int]:
    """Return the ranks that report the interface they chose, which is among the first lines."""
    return {rank for notice in facts.with_event(BootstrapInterface) for rank in notice.ranks}


def with_own_ranks(facts: Facts, settings: list[Setting]) -> list[Setting]:
    """Return the settings, without ranks that other processes have as well: those of communicators without a world."""
    if facts.job.rank_space == "global":
        return settings
    having = group_sets((rank, last.process) for last in facts.job.last_lines for rank in last.ranks)
    own = [all(having.get(rank, set()) <= set(one.processes) for rank in one.ranks or ()) for one in settings]
    return [one if is_own else one.with_fields(ranks=[]) for one, is_own in zip(settings, own, strict=True)]


def owners(setting: Setting) -> str:
    """Return who has a setting, in words: its ranks, or its processes where these are not known."""
    if setting.ranks is None:
        return "all ranks"
    if setting.ranks:
        return ranks_word(setting.ranks)
    named = [process for process in setting.processes if is_named(process.host)]
    if len(named) == len(setting.processes) == 1:
        return f"pid {named[0].pid} of host {named[0].host}"
    return f"host {', '.join(setting.hosts)}"
