"""The program calls NCCL in a way that cannot be."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.model.job import Finding, NotJudged
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, ranks_in

RULE = Rule(
    name="invalid-usage",
    category="failures",
    severity="error",
    title="The program calls NCCL in a way that cannot be",
)
_MEMORY = "memory that is no memory of this GPU, or was freed: NCCL takes device memory of the communicator's own GPU"
_ARGUMENT = "an argument that cannot be"
_BUILT = (
    "program and library were built for different NCCL releases: two libraries are installed, or LD_LIBRARY_PATH leads "
    "to the wrong one"
)
_LIFE = "a communicator that is destroyed, damaged or not ready yet"
_GROUP = "calls that may not stand in one group"
_KINDS = {
    **dict.fromkeys(("argument-not-a-pointer", "argument-null", "argument-wrong-device"), _MEMORY),
    **dict.fromkeys(
        ("argument-op-invalid", "argument-root-invalid", "argument-type-invalid", "rank-invalid"), _ARGUMENT
    ),
    **dict.fromkeys(("redop-destroy-invalid", "redop-type-mismatch", "comm-grow-invalid"), _ARGUMENT),
    **dict.fromkeys(("config-invalid", "config-channels-invalid"), _ARGUMENT),
    **dict.fromkeys(("config-not-initialized", "library-too-old", "application-too-old"), _BUILT),
    **dict.fromkeys(("comm-destroyed", "comm-corrupted", "comm-not-ready"), _LIFE),
    **dict.fromkeys(("group-end-outside", "self-send-unmatched", "group-mixed"), _GROUP),
}
"""By production what is wrong."""


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what NCCL says of its arguments."""
    failed = facts.notices(*_KINDS)
    if not failed:
        return
    facts.pass_over(failed)
    cause = _KINDS[failed[0].production]
    yield RULE.finding(
        f"NCCL is called in a way that cannot be: {failed[0].message}",
        cause=f"the program passes {cause}" if cause != _BUILT else cause,
        impact="the call fails, and most programs end with it",
        fix=[
            "python -c 'import torch; print(torch.cuda.nccl.version())'; ldconfig -p | grep libnccl   # one NCCL?"
            if cause == _BUILT
            else "Look at the traceback of this rank: the call that it names is the one to mend.",
            "torch.cuda.set_device(local_rank)   # before anything is put on a GPU",
            "NCCL_CHECK_POINTERS=1   # NCCL looks at every pointer, slower",
        ],
        ranks=ranks_in(failed),
        hosts=hosts_in(failed),
        evidence=first_said(failed),
        fatal=facts.job.failed or not facts.job.paths,
    )
