"""Ranks of one communicator print rings or trees that do not fit together."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, global_ranks
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.util.wording import count

RULE = Rule(
    name="rings-disagree",
    category="topology",
    severity="warning",
    title="Ranks of one communicator print different rings or trees",
)
_RELEASE = "python -c 'import torch; print(torch.cuda.nccl.version())'   # on every rank: the same release?"
_WORKED = ("connected", "destroyed")


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Tell of the first communicator whose ranks contradict each other; where it worked, the log is to blame."""
    odd = [comm for comm in facts.job.communicators if comm.inconsistent]
    if odd:
        yield _finding(odd[0], len(odd) - 1)


def _finding(comm: CommunicatorInfo, others: int) -> Finding:
    worked = comm.state in _WORKED and not comm.unconnected
    more = f" and {count(len(comm.inconsistent) - 1, 'contradiction')} more" if len(comm.inconsistent) > 1 else ""
    also = f"; {count(others, 'other communicator')} likewise" if others else ""
    return RULE.finding(
        f"communicator {comm.id}, {comm.inconsistent[0]}{more}{also}",
        cause="most likely the log: the ranks made their connections, so lines of two runs or jobs are mixed"
        if worked
        else "not proved: ranks with different NCCL releases, settings or topology files look for other neighbours; "
        "or the log mixes lines of two runs",
        impact="rings and trees of this communicator cannot be relied on in this report"
        if worked
        else "ranks with other neighbours wait for ever; rings and trees in this report cannot be relied on",
        fix=[
            "Give this tool the log of one run only, and the logs of all its ranks.",
            "NCCL_DEBUG_FILE=/logs/nccl.%h.%p.log   # gives each process a file of its own",
            *([] if worked else [_RELEASE]),
        ],
        severity="info" if worked else "warning",
        confidence="likely" if worked else "possible",
        ranks=global_ranks(comm, range(comm.nranks)),
        hosts=comm.hosts,
        evidence=[*comm.layout_lines.contradiction[:3], *comm.evidence[:2]],
    )
