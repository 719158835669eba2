"""Ranks that began to build a communicator and never finished, without an error."""

from collections.abc import Iterator

from nccl_inspect.model.job import CommunicatorInfo, Finding, NotJudged
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, count, global_ranks, ranks_word
from nccl_inspect.rules.hangs import phases, suspects, suspicion

RULE = Rule(
    name="hang-in-init",
    category="failures",
    severity="error",
    title="Ranks began to build a communicator and never finished",
    echo_of=(
        "rank-missing",
        "version-mismatch",
        "mixed-networks",
        "bootstrap-no-interface",
        "bootstrap-wrong-interface",
        "bootstrap-connect-refused",
        "bootstrap-no-route",
    ),
    because=("env-mismatch-across-ranks", "rccl-iommu-pt-missing"),
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge START without COMPLETE and without an error; only a line that ends the job proves that the log is whole."""
    if facts.job.failed or facts.failures():
        return
    for comm in facts.job.communicators:
        waiting = sorted(set(comm.started) - set(comm.completed))
        if not waiting or facts.paths_of(comm):
            continue  # what has connections was complete, though a line of it may be lost
        if facts.job.ended_by:
            yield _finding(facts, comm, waiting)
        else:
            yield RULE.undecided(
                f"{count(len(waiting), 'rank')} of communicator {comm.id} began and did not finish in this log: "
                "stuck, or the log was cut there",
                "the end of the log of every rank, up to the kill, the timeout or the next prompt",
            )
        return  # what follows the first stuck communicator waits for it


def _finding(facts: Facts, comm: CommunicatorInfo, waiting: list[int]) -> Finding:
    absent = sorted(set(range(comm.nranks)) - set(comm.started))
    missing = " What never began was not started, died before NCCL, or its log is not here." if absent else ""
    return RULE.finding(
        f"{count(len(waiting), 'rank')} of communicator {comm.id} ({comm.nranks} ranks) began and did not "
        f"finish the initialisation{suspicion(facts)}",
        cause=f"not in the log. How far the ranks came: {phases(facts, comm)}.{missing}{suspects(facts)}",
        impact="the job does not start; NCCL itself waits without a time limit",
        fix=[
            f"Look for {ranks_word(absent)}: the list of pods, the scheduler, their own logs."
            if absent
            else "py-spy dump --pid <pid>   # (or gdb) on a waiting rank: where does it stand?",
            "Let all hosts reach each other on all TCP ports of the bootstrap interface (NetworkPolicy, firewall).",
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,BOOTSTRAP,NET   # on all ranks: shows the last step of each",
        ],
        confidence="likely",
        ranks=global_ranks(comm, waiting),
        hosts=comm.hosts,
        evidence=[*comm.evidence[:3], *facts.job.ended_by[-2:]],
        fatal=True,
    )
