"""Ranks of one communicator print rings or trees that contradict each other."""

from nccl_inspect.judging.engine import Facts, Finding, Layer, Results, Rule
from nccl_inspect.judging.facts import global_ranks
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.util.wording import count

RULE = Rule(
    name="rings-disagree",
    category="topology",
    layer=Layer.RESOURCE,
    severity="warning",
    title="Ranks of one communicator print different rings or trees",
    shows=("rings-differ",),
)
_RELEASE = "python -c 'import torch; print(torch.cuda.nccl.version())'   # on every rank: the same release?"
_WORKED = ("connected", "destroyed")


def judge(facts: Facts) -> Results:
    """Judge the first communicator whose ranks contradict each other; if it worked, the log is at fault."""
    odd = [comm for comm in facts.job.communicators if comm.inconsistent]
    if odd:
        yield _finding(odd[0], len(odd) - 1)


def _finding(comm: CommunicatorInfo, others: int) -> Finding:
    worked = comm.state in _WORKED and not comm.unconnected
    more = f" and {count(len(comm.inconsistent) - 1, 'more contradiction')}" if len(comm.inconsistent) > 1 else ""
    also = f"; also {count(others, 'other communicator')}" if others else ""
    return RULE.finding(
        f"communicator {comm.id}, {comm.inconsistent[0]}{more}{also}",
        cause="most likely the log: the ranks made their connections, so it mixes lines of two runs or jobs"
        if worked
        else "not proved: ranks with different NCCL releases, settings or topology files expect different neighbors; "
        "or the log mixes lines of two runs",
        impact="the rings and trees of this communicator in this report are unreliable"
        if worked
        else "ranks with different neighbors wait forever; the rings and trees in this report are unreliable",
        fix=[
            "Read the log of one run only, with the logs of all its ranks.",
            "NCCL_DEBUG_FILE=/logs/nccl.%h.%p.log   # one file per process",
            *([] if worked else [_RELEASE]),
        ],
        severity="info" if worked else "warning",
        confidence="likely" if worked else "possible",
        ranks=global_ranks(comm, range(comm.nranks)),
        hosts=comm.hosts,
        evidence=[*comm.layout.contradiction()[:3], *comm.evidence[:2]],
    )
