"""NVSHMEM or rocSHMEM failed."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Layer, Notice, Results, Rule, value
from nccl_inspect.judging.statements import find_text

RULE = Rule(
    name="nvshmem-failed",
    category="failures",
    title="NVSHMEM or rocSHMEM failed",
    shows=("no-nvshmem",),
    layer=Layer.CALL,
)
_CAUSES = {
    "bootstrap": "the processes did not find each other: no interface that reaches all hosts, another number of "
    "processes than expected, or a bootstrap (MPI, PMI, UID) that is not there",
    "mem_heap": "the symmetric memory could not be made or shared: too little free memory for NVSHMEM_SYMMETRIC_SIZE, "
    "no IMEX channel between hosts of an NVLink domain, or containers without a common IPC namespace",
    "team": "the resources of a team (NVLink SHARP, NVSHMEM_MAX_TEAMS) could not be made",
    "libfabric": "the libfabric transport failed: no provider, no NIC in the container, or GDRCopy is missing",
    "ib": "the InfiniBand transport failed: a library or firmware that is too old, or memory that cannot be registered",
}
"""By what the name of the source file holds."""


def judge(facts: Facts) -> Results:
    """Judge what no other rule about NVSHMEM knows: the first line of a chain names the cause."""
    errors = facts.errors_of_rule(RULE.name)
    if not errors:
        return
    yield stated_errors.finding(
        RULE,
        facts,
        errors,
        f"NVSHMEM failed: {find_text(errors[0])}",
        cause=_cause(errors[0]),
        stops="NVSHMEM does not start, or ends, and with it DeepEP and whatever else uses it",
        fix=(
            "Look at the first line of NVSHMEM on each rank: the lines below follow from it.",
            "NVSHMEM_DEBUG=INFO   # NVSHMEM_DEBUG_SUBSYS=INIT,MEM,TRANSPORT: what happens before it",
            "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME=<interface>   # one that reaches all hosts",
            "NVSHMEM_SYMMETRIC_SIZE=<bytes>   # less, if memory is out; more, if an allocation does not fit",
        ),
        confirm="Check whether the program continues without NVSHMEM.",
        confidence="likely" if facts.job.failed else "possible",
    )


def _cause(notice: Notice) -> str:
    where = f"{value(notice, 'file') or ''} {notice.message}"
    known = next((cause for part, cause in _CAUSES.items() if part in where), "")
    return known or "see the message: the first line of the chain names the call that failed"
