"""P2P between GPUs of a host: settings that disable it, failed imports and a missing fabric."""

from __future__ import annotations

from nccl_inspect.judging import cuda
from nccl_inspect.judging.cuda import AT_START
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.statements import value
from nccl_inspect.model.job import Notice, Selection, Setting

_LEVELS_WITHOUT_P2P = {"LOC", "0"}
_ALLOWED_BY = {
    **dict.fromkeys(("NVL", "NVB", "C2C"), ("NV",)),
    **dict.fromkeys(("PIX", "1"), ("NV", "PIX")),
}
"""Levels below NCCL's own choice, PXB, with the classes of pairs that they allow to use P2P."""


def disabling_settings(facts: Facts) -> list[Setting]:
    """Return the settings that disable P2P altogether."""
    return [
        one
        for one in facts.settings("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")
        if (one.value.upper() in _LEVELS_WITHOUT_P2P if one.name == "NCCL_P2P_LEVEL" else one.value not in ("0", ""))
    ]


def limiting_levels(facts: Facts, pairs: Selection) -> list[Setting]:
    """Return the levels that may keep these pairs from P2P that NCCL would otherwise use."""
    on_nvlink = bool(facts.platform and facts.platform.nvlink)
    kinds = [kind.pair_class or ("NV" if on_nvlink else "") for kind in pairs.kinds]
    levels = [(setting, _ALLOWED_BY.get(setting.value.upper())) for setting in facts.settings("NCCL_P2P_LEVEL")]
    return [setting for setting, allowed in levels if allowed and not all(kind.startswith(allowed) for kind in kinds)]


def has_no_pairs(facts: Facts) -> bool:
    """Return whether the log shows that each host has one rank."""
    comms = facts.job.communicators
    whole = all(len(comm.started) == comm.nranks or comm.local_ranks == 1 for comm in comms)
    return bool(comms) and whole and all(len(host.ranks) == 1 for host in facts.job.hosts)


def local_over_net(facts: Facts) -> Selection:
    """Pairs of one host that use only the network, and are identified by more than the order of use."""
    return facts.paths("intra", "NET").where(
        lambda kind: not kind.doubtful and not any(also.transport == "P2P" for also in kind.also)
    )


def find_unshared(facts: Facts) -> list[Notice]:
    """Return CUDA's refusals to export, open or map the memory of another GPU."""
    peers = facts.notices("nccl/p2p-peer-access-failed")
    of_p2p = (failure for failure in cuda.failures(facts) if str(failure.file).endswith("transport/p2p.cc"))
    failures = [failure for failure in of_p2p if failure.code in cuda.NOT_SHARED]
    return [
        *(notice for notice in cuda.failed_calls(facts, "transport/p2p.cc") if cuda.code_of(notice) in cuda.NOT_SHARED),
        *(failure.notice for failure in failures if cuda.is_hip(failure.notice)),
        *facts.notices("nccl/p2p-ipc-handle-failed", "rccl/rccl-direct-exchange-failed"),
        *(notice for notice in peers if value(notice, "code") != cuda.PEERS_EXHAUSTED),
    ]


_OTHERS = {2, 802, 919, 214, 220, 226} | (AT_START - {101, 999})
"""Errors that rules of their own report, wherever they occur: memory, a fabric that is not up, hardware, and the start
of CUDA."""


def is_of_fabric(failure: cuda.Failure) -> bool:
    """Return whether a multicast call failed with an error that no other rule handles."""
    is_unclaimed = failure.code not in (None, *_OTHERS) and not cuda.knows(failure.code, "kernel")
    return is_unclaimed and str(failure.file).endswith("transport/nvls.cc")
