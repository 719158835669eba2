"""The ranks called different collectives, or with different sizes."""

from collections.abc import Iterator

from nccl_inspect.model.job import Evidence, Finding, NotJudged
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, ranges, ranks_in
from nccl_inspect.rules.waits import Wait, waits

RULE = Rule(
    name="collective-mismatch",
    category="failures",
    severity="error",
    title="Ranks called different collectives, or with different sizes",
    because=("env-mismatch-across-ranks", "version-mismatch"),
)
_SIZES = ("socket-net-message-truncated", "ib-collective-mismatch", "ib-incorrect-receive", "ofi-size-mismatch")
"""A network transport got more than the receiver expects."""
_SAME_SIZE = ("ALLREDUCE", "BROADCAST", "_BROADCAST_OOP", "REDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE")
"""Operations for which every rank must pass the same number of elements."""
_PAIRWISE = ("SEND", "RECV", "COALESCED", "UNKNOWN")
"""Here different names on different ranks are right, or tell nothing."""


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what NCCL says of messages that do not fit, and PyTorch's time-outs in different calls of one number."""
    sizes = facts.notices(*_SIZES)
    stated = facts.notices("collective-hang", "collective-window-mismatch", "collectives-differ")
    apart = _apart(waits(facts))
    if not (sizes or stated or apart):
        return
    said = [*stated, *sizes]
    yield RULE.finding(
        f"ranks are in different calls: {_told(apart)}" if apart else said[0].message.partition(". If you believe")[0],
        cause=_cause(sizes=bool(sizes), certain=bool(stated or apart)),
        impact="ranks wait for each other for ever, or data goes wrong; NCCL does not compare calls itself",
        fix=[
            "look for a collective in a branch that some ranks take: if rank == 0, an uneven last batch, an exception",
            "TORCH_DISTRIBUTED_DEBUG=DETAIL lets PyTorch compare every call, and name the ranks that differ",
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL on all ranks: compare opCount, count and datatype",
            "the same NCCL_ALGO, NCCL_PROTO, NCCL_BUFFSIZE and NCCL release on all ranks",
        ],
        confidence="certain" if stated or apart else "likely",
        ranks=ranks_in(said) | {wait.rank for wait in apart if wait.rank is not None},
        hosts=hosts_in(said),
        evidence=_evidence(apart) or first_said(said),
        fatal=True,
    )


def _apart(found: list[Wait]) -> list[Wait]:
    """Waits of one group in the work of one number that are not for the same call."""
    by_work: dict[tuple[str, int], list[Wait]] = {}
    for wait in found:
        if wait.operation not in _PAIRWISE and wait.group is not None:
            by_work.setdefault((wait.group, wait.seq), []).append(wait)
    for same in by_work.values():
        calls = {(wait.operation, wait.numel if wait.operation in _SAME_SIZE else None) for wait in same}
        if len(calls) > 1 and len({wait.rank for wait in same}) > 1:
            return same
    return []


def _told(apart: list[Wait]) -> str:
    calls: dict[str, set[int]] = {}
    for wait in apart:
        size = f" of {wait.numel} elements" if wait.numel is not None else ""
        calls.setdefault(wait.operation + size, set()).add(-1 if wait.rank is None else wait.rank)
    who = "; ".join(f"{call} on rank {ranges(ranks)}" for call, ranks in sorted(calls.items()))
    return f"work {apart[0].seq} of process group {apart[0].group} is {who}"


def _evidence(apart: list[Wait]) -> list[Evidence]:
    """One line of each call."""
    first = {(wait.operation, wait.numel): wait.notice.evidence[0] for wait in reversed(apart)}
    return list(first.values())


def _cause(sizes: bool, certain: bool) -> str:
    if certain:
        return "the ranks do not make the same calls in the same order: a branch that only some take, or uneven data"
    assert sizes
    return (
        "two ranks disagree about a message: different collectives, sizes or types, or another NCCL_ALGO, NCCL_PROTO, "
        "NCCL_BUFFSIZE or NCCL release on some rank. On InfiniBand also forced relaxed ordering, on sockets bytes of "
        "a foreign program"
    )
