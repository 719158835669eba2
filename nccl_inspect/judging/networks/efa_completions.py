"""Completions with an error that EFA's provider reports, and the peers they were for."""

from __future__ import annotations

from nccl_inspect.event.types import OfiProvider
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.statements import value
from nccl_inspect.model.job import Notice

UNREACHABLE = 15
"""EFA: the remote device never answered."""
UNRESPONSIVE = 13
"""EFA: no answer. Until libfabric 1.22 even if it never answered; from 2.0 on only if it answered before."""
_HOST_UNREACHABLE = 113
_GONE = (1, 8, 9, UNRESPONSIVE, 14, UNREACHABLE, 4124, 4126, 4127)
"""Codes of EFA that mean that the process or the machine at the other end is gone."""
_OF_TEXT = (
    ("flushed during", 1),
    ("receiver connection aborted", 8),
    ("connection was reset by remote peer", 8),
    ("invalid receiver queue pair", 9),
    ("bad queue pair", 9),
    ("receiver not ready", 10),
    ("destination resource not ready", 10),
    ("unresponsive receiver (connection previously", 4124),
    ("unresponsive receiver (reachable", 4126),
    ("unresponsive", UNRESPONSIVE),
    ("unreachable remote", UNREACHABLE),
)
"""Beginnings of texts; the plugin prints the number only from 1.10 on."""


def completions(facts: Facts) -> list[Notice]:
    """Failed transfers of aws-ofi-nccl; none with a provider other than efa, whose codes differ."""
    providers = {getattr(notice.event, "provider", "") for notice in facts.with_event(OfiProvider)}
    return facts.with_role("efa-completion") if not providers or "efa" in providers else []


def code_of(notice: Notice) -> int | None:
    """EFA's code of a failed transfer, derived from its text if the number is not printed."""
    if (code := value(notice, "prov_errno")) is not None:
        return int(code)
    text = str(value(notice, "error")).lower()
    return next((code for beginning, code in _OF_TEXT if text.startswith(beginning)), None)


def unreachable_peers(facts: Facts) -> list[Notice]:
    """Failed transfers to a peer that never answered.

    If connections were made before, the peer is gone; likewise if an old libfabric does not distinguish the two and
    the log does not show that connections were never made.
    """
    if is_connected(facts):
        return []
    sure = never_connected(facts)
    return [notice for notice in completions(facts) if _never_answered(notice) or (sure and _did_not_answer(notice))]


def never_connected(facts: Facts) -> bool:
    """Return whether the log shows that a communicator started to connect and did not finish."""
    return not is_connected(facts) and any(comm.unconnected for comm in facts.job.communicators)


def is_connected(facts: Facts) -> bool:
    """Return whether a communicator has all its connections over libfabric: making them takes messages through EFA."""
    done = {comm.id for comm in facts.job.communicators if not comm.unconnected}
    paths = facts.inter_host_net_paths().where(lambda kind: "Libfabric" in kind.detail)
    return any(done.intersection(comms) for (comms,) in paths.distinct("communicators"))


def lost_peers(facts: Facts) -> list[Notice]:
    """Failed transfers that only report a gone peer, if there are no others."""
    failed = completions(facts)
    if unreachable_peers(facts) or not all(map(is_gone, failed)):
        return []
    return [*failed, *facts.with_role("beside-completion")] if failed else []


def _never_answered(notice: Notice) -> bool:
    code = code_of(notice)
    return code == UNREACHABLE or (code is None and value(notice, "err") == _HOST_UNREACHABLE)


def _did_not_answer(notice: Notice) -> bool:
    return code_of(notice) == UNRESPONSIVE and "previously responsive" not in str(value(notice, "error"))


def is_gone(notice: Notice) -> bool:
    """Return whether the provider reports that the peer is no longer reachable."""
    return code_of(notice) in _GONE or value(notice, "err") == _HOST_UNREACHABLE
